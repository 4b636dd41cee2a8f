#!/usr/bin/env python3
"""What the repository has from elsewhere for its pages: checks the files' digests, or fetches them anew.

Usage: vendored.py [--renew [VERSION]]

`crates/pictures/assets/vendored.toml` has each package's version, licence and digests. With --renew the package is fetched by `npm pack`, of the
version that is there or of the one given; the files and their digests are written. Python's standard library, and npm for --renew.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "crates/pictures/assets"
LIST = ASSETS / "vendored.toml"


def wrong(assets: Path = ASSETS) -> list[str]:
    """What differs from the list of `assets`, a line for each."""
    found = []
    for name, package in tomllib.loads((assets / LIST.name).read_text()).items():
        for file, digest in package["files"].items():
            path = assets / name / Path(file).name
            if not path.exists():
                found.append(f"{path.name}: it is missing")
            elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                found.append(f"{path.name}: its digest is not that of {package['package']} {package['version']}")
    return found


def renew(version: str | None) -> None:
    """Fetches every package, and writes its files and digests."""
    text = LIST.read_text()
    for name, package in tomllib.loads(text).items():
        wanted = version or package["version"]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", f"{package['package']}@{wanted}"], cwd=folder, check=True)
            [archive] = Path(folder).glob("*.tgz")
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            if wanted == package["version"] and integrity != package["integrity"]:
                raise SystemExit(f"{package['package']} {wanted}: the registry has another package than the list says")
            text = text.replace(package["version"], wanted).replace(package["integrity"], integrity)
            with tarfile.open(archive) as tar:
                for file, digest in package["files"].items():
                    content = tar.extractfile(f"package/{file}").read()
                    (ASSETS / name / Path(file).name).write_bytes(content)
                    text = text.replace(digest, hashlib.sha256(content).hexdigest())
    LIST.write_text(text)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--renew", nargs="?", const="", metavar="VERSION", help="fetch the files anew")
    options = parser.parse_args(arguments)
    if options.renew is not None:
        renew(options.renew or None)
    found = wrong()
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
