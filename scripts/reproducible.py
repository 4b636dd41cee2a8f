#!/usr/bin/env python3
"""Builds the static program twice, in two folders, and compares the archives byte by byte.

Usage: reproducible.py [--profile NAME] [--keep FOLDER]

The sources are those of the last commit, unpacked into two folders of different names; nothing of one build is used by the other. Exits with 1
if the digests differ, and says at which byte of which file. Python's standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Names of different length: a path that gets into a program moves what follows it.
FOLDERS = ("first", "a-second-one")


def unpack(folder: Path) -> None:
    """The sources of the last commit, as they are."""
    folder.mkdir(parents=True)
    with subprocess.Popen(["git", "archive", "--format=tar", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        with tarfile.open(fileobj=archive.stdout, mode="r|") as sources:
            sources.extractall(folder, filter="data")
    if archive.returncode != 0:
        sys.exit("reproducible: `git archive` has failed")


def build(folder: Path, profile: str, seconds: str) -> Path:
    """The archive that a folder's sources give."""
    environment = {**os.environ, "FANIN_PROFILE": profile, "SOURCE_DATE_EPOCH": seconds}
    done = subprocess.run([sys.executable, "scripts/dist.py", "program"], cwd=folder, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"reproducible: the build in {folder} has failed")
    [archive] = (folder / "dist").glob("*.tar.gz")
    return archive


def difference(one: Path, other: Path) -> str | None:
    """Where two archives differ: the file in them, and its first byte that is another; nothing where they are the same."""
    if one.read_bytes() == other.read_bytes():
        return None
    with tarfile.open(one) as first, tarfile.open(other) as second:
        names = first.getnames()
        if names != second.getnames():
            return f"one has {names}, the other {second.getnames()}"
        for name in names:
            # Members that are no plain files have no bytes.
            left, right = (archive.extractfile(name) for archive in (first, second))
            if left is None or right is None:
                continue
            a, b = left.read(), right.read()
            if a != b:
                place = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
                return f"{name} ({len(a)} and {len(b)} bytes) differs from byte {place} on"
    return "the files in them are equal: dates, owners or modes differ"


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--profile", default="dist", metavar="NAME", help="Cargo's profile (dist)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="build there, and leave everything")
    given = parser.parse_args(arguments)
    seconds = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as temporary:
        base = given.keep.resolve() if given.keep else Path(temporary)
        archives = []
        for name in FOLDERS:
            unpack(base / name)
            archives.append(build(base / name, given.profile, seconds))
        for archive in archives:
            print(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.relative_to(base)}")
        found = difference(*archives)
    print(f"reproducible: {found}" if found else "reproducible: two builds, one digest")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
