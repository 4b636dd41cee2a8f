#!/usr/bin/env python3
"""Builds what is handed out, into dist/: a wheel for every CPython from 3.10 on, and a static program; and a file of their checksums.

Usage: dist.py [--out FOLDER] [wheel] [program]

The program is linked with musl. Where that is not to be had (Rust's standard library for it by rustup, a C compiler as Debian's musl-tools),
it is linked with this machine's glibc, statically as well; names of hosts are then looked up by the glibc of the machine that it runs on, and
addresses need nothing. What was built is said. A program of 30 MB or more is an error.

The static program and its archive are reproducible: the same sources, compiler and C compiler give the same bytes, in whatever folder and on whatever
day. `reproducible.py` builds it twice and compares.

FANIN_PROFILE names the Cargo profile, `dist` by default. SOURCE_DATE_EPOCH, in seconds, dates what is packed; otherwise the last commit does, and
where there is none, 1980. Python's standard library only.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path

import packages
import version

ROOT = Path(__file__).resolve().parent.parent
#: Where maturin is installed.
ENVIRONMENT = ROOT / "target" / "tools" / "dist"
REQUIREMENTS = ROOT / "python" / "tests" / "requirements.txt"
#: The largest program, in bytes.
PROGRAM_BYTES_MAX = 30_000_000
#: What files are dated where nothing else is known: the oldest date that a zip archive can have.
EPOCH_S = 315_532_800
#: How long rustup may take to fetch a standard library, in seconds.
FETCH_LIMIT_S = 120


def run(command: Sequence[str | Path], **environment: str) -> None:
    """Runs a command in the repository; ends this program where it fails."""
    shown = " ".join(str(word) for word in command)
    print(f"dist: {shown}", flush=True)
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        sys.exit(f"dist: `{shown}` has failed")


def profile() -> str:
    """The Cargo profile."""
    return os.environ.get("FANIN_PROFILE", "dist")


def has_library(target: str) -> bool:
    """Whether Rust's standard library is installed for a target."""
    found = subprocess.run(["rustc", "--print", "target-libdir", "--target", target], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.returncode == 0 and any(Path(found.stdout.strip()).glob("libstd-*.rlib"))


def can_have_library(target: str) -> bool:
    """Whether it is there, if need be after rustup has fetched it."""
    if has_library(target):
        return True
    try:
        subprocess.run(["rustup", "target", "add", target], cwd=ROOT, capture_output=True, timeout=FETCH_LIMIT_S, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return has_library(target)


def can_have_musl(target: str) -> bool:
    """Whether Rust's library and a C compiler for musl are there, if need be after installing them: some crates have a little C in them."""
    compiler = packages.missing(["musl-tools"], lambda: shutil.which("musl-gcc") is not None)
    if compiler is not None:
        print(f"dist: {compiler}", flush=True)
    return compiler is None and can_have_library(target)


def static_target(machine: str, can_have: bool) -> tuple[str, dict[str, str], str]:
    """The target of the static program, what is set for its build, and what it is linked with, in words."""
    if can_have:
        return f"{machine}-unknown-linux-musl", {}, "musl"
    words = "glibc, since musl is not to be had here: names of hosts are looked up by the glibc of the machine that it runs on"
    return f"{machine}-unknown-linux-gnu", {"RUSTFLAGS": "-C target-feature=+crt-static"}, words


def epoch() -> int:
    """When what is packed was made, in seconds: by SOURCE_DATE_EPOCH, or the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        if not given.isdecimal():
            sys.exit(f"dist: SOURCE_DATE_EPOCH = {given!r}: expected seconds since 1970")
        return int(given)
    found = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(found.stdout) if found.returncode == 0 and found.stdout.strip() else EPOCH_S


def without_paths(root: Path) -> dict[str, str]:
    """What is set so that no path of this machine is in a program: for rustc, and for the C compiler that some crates call."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    found = subprocess.run(["rustc", "--print", "sysroot"], cwd=ROOT, capture_output=True, text=True, check=False)
    places = {root: "/fanin", home: "/cargo"}
    if found.returncode == 0:
        places[Path(found.stdout.strip())] = "/rust"
    flags = [f"--remap-path-prefix={place}={name}" for place, name in places.items()]
    compiled = " ".join(f"-ffile-prefix-map={place}={name}" for place, name in places.items())
    given = os.environ.get("RUSTFLAGS", "").split()
    return {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join([*given, *flags]), "CFLAGS": f"{os.environ.get('CFLAGS', '')} {compiled}".strip()}


def pack(archive: Path, files: Sequence[tuple[Path, str]], seconds: int) -> None:
    """A `.tar.gz` of files that says nothing of who has made it, and when: the same files give the same bytes."""
    with archive.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=seconds) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as out:
            for file, name in files:
                entry = out.gettarinfo(file, name)
                entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = seconds, 0, 0, "", ""
                entry.mode = 0o755 if entry.mode & 0o100 else 0o644
                with file.open("rb") as content:
                    out.addfile(entry, content)


def is_static(program: Path) -> bool:
    """Whether a program needs no loader and no libraries."""
    headers = subprocess.run(["readelf", "--program-headers", "--dynamic", program], capture_output=True, text=True, check=True).stdout
    return "INTERP" not in headers and "(NEEDED)" not in headers


def build_program(out: Path) -> Path:
    """Builds the static program, and packs it."""
    machine = platform.machine()
    target, environment, linked = static_target(machine, can_have_musl(f"{machine}-unknown-linux-musl"))
    command = ["cargo", "build", "--locked", "--profile", profile(), "--target", target, "--package", "fanin", "--bin", "fanin"]
    paths = without_paths(ROOT)
    flags = environment.get("RUSTFLAGS", "").split()
    paths["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join([*flags, paths["CARGO_ENCODED_RUSTFLAGS"]])
    run(command, **paths)
    folder = "debug" if profile() == "dev" else profile()
    name = f"fanin-{version.version()}-{target}"
    program = ROOT / "target" / target / folder / "stripped" / "fanin"
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program.parent.parent / "fanin", program)
    run(["strip", program])
    if not is_static(program):
        sys.exit(f"dist: {program} is no static program")
    size = program.stat().st_size
    if size >= PROGRAM_BYTES_MAX:
        sys.exit(f"dist: {program} has {size} bytes, and less than {PROGRAM_BYTES_MAX} are allowed")
    packed = out / f"{name}.tar.gz"
    pack(packed, [(program, f"{name}/fanin"), (ROOT / "LICENSE", f"{name}/LICENSE")], epoch())
    print(f"dist: {packed.name}: a static program of {size / 1e6:.1f} MB, linked with {linked}", flush=True)
    return packed


def build_wheel(out: Path) -> Path:
    """Builds the wheel: with the tag of the oldest Linux that it runs on."""
    if not (ENVIRONMENT / "bin" / "maturin").exists():
        ENVIRONMENT.parent.mkdir(parents=True, exist_ok=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        [maturin] = re.findall(r"^maturin==.*$", REQUIREMENTS.read_text(), re.MULTILINE)
        run([ENVIRONMENT / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", maturin])
    python = ENVIRONMENT / "bin" / "python"
    before = set(out.glob("*.whl"))
    # maturin builds one crate: the program is staged before it.
    paths = {**without_paths(ROOT), "SOURCE_DATE_EPOCH": str(epoch())}
    run([python, "python/build/fanin_build.py"], FANIN_PROFILE=profile(), **paths)
    run([python, "-m", "maturin", "build", "--locked", "--profile", profile(), "--out", out], **paths)
    made = sorted(set(out.glob("*.whl")) - before) or sorted(out.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime)[-1:]
    print(f"dist: {made[0].name}: {made[0].stat().st_size / 1e6:.1f} MB", flush=True)
    return made[0]


def write_checksums(out: Path) -> None:
    """Writes the SHA-256 of every file of the folder, in the form that `sha256sum --check` reads."""
    files = sorted(file for file in out.iterdir() if file.is_file() and file.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / "SHA256SUMS").write_text("".join(lines))


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description="Builds what is handed out.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where it is put (dist)")
    parser.add_argument("--checksums", action="store_true", help="only write the checksums of what is there already")
    parser.add_argument("what", nargs="*", metavar="wheel|program", help="both where neither is named")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.what if name not in ("wheel", "program")]
    if unknown:
        parser.error(f"{unknown[0]!r}: expected wheel or program")
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    what = [] if given.checksums else given.what or ["wheel", "program"]
    if "wheel" in what:
        build_wheel(out)
    if "program" in what:
        build_program(out)
    write_checksums(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
