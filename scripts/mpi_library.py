#!/usr/bin/env python3
"""libfanin_mpi: collectives of unmodified MPI programs by Fanin, as a library that is loaded before the MPI's (docs/mpi.md).

Usage: mpi_library.py [--profile NAME] [--fast] [--prefix FOLDER] [--mpicc COMPILER ...]

Builds one library for each MPI that is installed, as lib/openmpi/libfanin_mpi.so and lib/mpich/libfanin_mpi.so below the prefix
(target/c, or FOLDER). Each is compiled with its MPI's own compiler and mpi.h, and contains libfanin. Compilers are those of Debian's
packages, or `mpicc`, or what is given. Needs Rust and a C compiler. `--fast` builds libfanin without the compiler of custom operators.
Python's standard library only.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import c_library

ROOT = c_library.ROOT
FOLDER = ROOT / "mpi"
#: Debian's names, and everybody's.
COMPILERS = ("mpicc.openmpi", "mpicc.mpich", "mpicc")
#: What each MPI's header defines.
KINDS = {"OPEN_MPI": "openmpi", "MPICH_VERSION": "mpich"}
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def kind_of(compiler: str) -> str | None:
    """Which MPI a compiler is of, or None where it is neither."""
    probe = "#include <mpi.h>\n" + "".join(f"#ifdef {macro}\nfound {name}\n#endif\n" for macro, name in KINDS.items())
    done = subprocess.run([compiler, "-E", "-x", "c", "-"], input=probe, capture_output=True, text=True, check=False)
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("found ")]
    return found[0] if done.returncode == 0 and found else None


def compilers(wanted: Sequence[str]) -> dict[str, str]:
    """The compiler of each MPI that is here."""
    found: dict[str, str] = {}
    for compiler in wanted or COMPILERS:
        path = shutil.which(compiler)
        kind = kind_of(path) if path else None
        if kind is not None:
            found.setdefault(kind, compiler)
    return found


def link(compiler: str, archive: Path, to: Path) -> None:
    """Compiles the library of one MPI."""
    to.parent.mkdir(parents=True, exist_ok=True)
    sources = sorted(str(path) for path in (FOLDER / "src").glob("*.c"))
    headers = ["-I", str(c_library.CRATE / "include")]
    options = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", *WARNINGS]
    linking = [f"-Wl,--version-script={FOLDER / 'fanin_mpi.map'}", "-Wl,--gc-sections", "-Wl,-z,relro,-z,now", "-Wl,--no-undefined"]
    subprocess.run([compiler, *options, *headers, *sources, str(archive), *linking, *c_library.LIBRARIES, "-o", str(to)], check=True)


def library(prefix: Path, kind: str) -> Path:
    """Where the library of an MPI is."""
    return prefix / "lib" / kind / "libfanin_mpi.so"


def build(profile: str, fast: bool, prefix: Path, wanted: Sequence[str] = ()) -> dict[str, str]:
    """Builds the library of each MPI, and gives their compilers."""
    found = compilers(wanted)
    if found:
        archive = c_library.static_library(profile, fast)
        for kind, compiler in found.items():
            link(compiler, archive, library(prefix, kind))
    return found


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="release")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--prefix", type=Path, default=ROOT / "target" / "c")
    parser.add_argument("--mpicc", action="append", default=[], metavar="COMPILER")
    args = parser.parse_args(arguments)
    found = build(args.profile, args.fast, args.prefix, args.mpicc)
    for kind in found:
        print(library(args.prefix, kind))
    if not found:
        print("no Open MPI or MPICH with a compiler: install openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev", file=sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
