#!/usr/bin/env python3
"""libfanin: the communicator for C, C++ and Fortran, as shared and static library with header, Fortran module and pkg-config file.

Usage: c_library.py [--profile NAME] [--fast] [--prefix FOLDER] build     into target/c, or FOLDER
       c_library.py header [--check]                                      crates/c/include/fanin.h, made of the crate by cbindgen
       c_library.py symbols FILE                                          what a shared library exports, one a line

The shared library is linked of the static one, with versions of its symbols (crates/c/abi/fanin.map) and nothing else exported. Needs Rust and a C
compiler. `--fast` builds without the compiler of custom operators. cbindgen is installed into target/tools. Python's standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = ROOT / "crates" / "c"
HEADER = CRATE / "include" / "fanin.h"
MAP = CRATE / "abi" / "fanin.map"
CBINDGEN = "0.29.4"
#: Of binary compatibility: raised when a symbol goes or changes its meaning.
ABI = 0
#: What Rust's standard library needs of the system.
LIBRARIES = ("-lpthread", "-ldl", "-lm", "-lgcc_s", "-lc")

PKG_CONFIG = """prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: fanin
Description: Collectives between processes, summed by switches on the way
Version: {version}
Libs: -L${{libdir}} -lfanin
Libs.private: {libraries}
Cflags: -I${{includedir}}
"""


def version() -> str:
    """That of the workspace."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def static_library(profile: str, fast: bool) -> Path:
    """Builds the static library; where it is."""
    command = ["cargo", "build", "--locked", "-p", "fanin-c", "--profile", profile, *(["--no-default-features"] if fast else [])]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / ("debug" if profile == "dev" else profile) / "libfanin_c.a"


def link(archive: Path, to: Path) -> None:
    """Links the shared library of the static one."""
    name = f"libfanin.so.{ABI}"
    options = [f"-Wl,-soname,{name}", f"-Wl,--version-script={MAP}", "-Wl,--gc-sections", "-Wl,-z,relro,-z,now", "-Wl,--no-undefined"]
    exported = [f"-Wl,-u,{symbol}" for symbol in listed()]
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-o", str(to), *options, *exported, str(archive), *LIBRARIES], check=True)


def listed() -> list[str]:
    """The symbols that the map has."""
    words = MAP.read_text().split()
    return [word.removesuffix(";") for word in words if word.startswith("fanin_")]


def symbols(library: Path) -> list[str]:
    """What a shared library exports, with versions."""
    done = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", str(library)], capture_output=True, text=True, check=True)
    names = sorted(line.split()[-1] for line in done.stdout.splitlines())
    # The versions themselves are symbols, too.
    return [name for name in names if "@" in name and not name.startswith("FANIN_")]


def build(profile: str, fast: bool, prefix: Path) -> None:
    """Builds all, and puts it where programs expect it below `prefix`."""
    archive = static_library(profile, fast)
    libraries, headers = prefix / "lib", prefix / "include"
    for folder in (libraries / "pkgconfig", headers):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HEADER, headers)
    shutil.copy(HEADER.with_name("fanin.f90"), headers)
    shutil.copy(archive, libraries / "libfanin.a")
    whole = f"libfanin.so.{version()}"
    link(archive, libraries / whole)
    for name in (f"libfanin.so.{ABI}", "libfanin.so"):
        (libraries / name).unlink(missing_ok=True)
        (libraries / name).symlink_to(whole)
    (libraries / "pkgconfig" / "fanin.pc").write_text(PKG_CONFIG.format(version=version(), libraries=" ".join(LIBRARIES)))


def cbindgen() -> Path:
    """The program, which is installed where it is not there."""
    home = ROOT / "target" / "tools" / f"cbindgen-{CBINDGEN}"
    program = home / "bin" / "cbindgen"
    if not program.exists():
        soon = ["--config", "profile.release.opt-level=0", "--config", "profile.release.lto=false", "--config", "profile.release.codegen-units=16"]
        command = ["cargo", "install", "--locked", "cbindgen", "--version", CBINDGEN, "--root", str(home), "--target-dir", str(ROOT / "target" / "tools" / "build"), *soon]
        subprocess.run(command, cwd=ROOT, check=True)
    return program


def header() -> str:
    """The header that the crate makes."""
    done = subprocess.run([str(cbindgen()), "--quiet", "--config", str(CRATE / "cbindgen.toml"), str(CRATE)], capture_output=True, text=True, check=True)
    # What Rust calls so are the duties of whoever calls.
    return done.stdout.replace("\n # Safety\n", "\n The caller sees to this:\n")


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "header", "symbols"])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--profile", default="release")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--prefix", type=Path, default=ROOT / "target" / "c")
    parser.add_argument("--check", action="store_true", help="only say whether the header is as the crate makes it")
    args = parser.parse_args(arguments)
    if args.what == "symbols":
        if args.file is None:
            parser.error("symbols: of which library?")
        print("\n".join(symbols(args.file)))
        return 0
    if args.what == "build":
        build(args.profile, args.fast, args.prefix)
        print(args.prefix)
        return 0
    made = header()
    if not args.check:
        HEADER.write_text(made)
    elif made != HEADER.read_text():
        print(f"{HEADER.relative_to(ROOT)} is not what the crate makes: run scripts/c_library.py header")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
