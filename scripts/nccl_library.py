#!/usr/bin/env python3
"""libnccl-net-fanin.so, which NCCL loads where NCCL_NET_PLUGIN=fanin.

Usage: nccl_library.py [--profile NAME] [--fast] [--prefix FOLDER]     into target/nccl/lib, or FOLDER/lib
       nccl_library.py --symbols FILE                                  what a library exports, one a line

Needs Rust alone. `--fast` builds without the compiler of custom operators. Python's standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "libnccl-net-fanin.so"
VERSIONS = (8, 9, 10, 11, 12)
#: NCCL unloads its plugins, and threads of the standard library's may still end then: the library stays.
STAYS = "-Clink-arg=-Wl,-z,nodelete"


def listed() -> list[str]:
    """What NCCL looks for."""
    return sorted(f"nccl{kind}Plugin_v{version}" for kind in ("Net", "CollNet") for version in VERSIONS)


def symbols(library: Path) -> list[str]:
    """What a shared library exports."""
    done = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return sorted(line.split()[-1] for line in done.stdout.splitlines())


def is_kept(library: Path) -> bool:
    """Whether the library says that it is not to be unloaded."""
    done = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True)
    return "NODELETE" in done.stdout


def build(profile: str, fast: bool, prefix: Path) -> Path:
    """Builds it, and gives it the name that NCCL looks for; where it is."""
    features = ["--no-default-features"] if fast else []
    command = ["cargo", "rustc", "--locked", "-p", "fanin-nccl", "--lib", "--crate-type", "cdylib", "--profile", profile, *features, "--", STAYS]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / ("debug" if profile == "dev" else profile)
    (prefix / "lib").mkdir(parents=True, exist_ok=True)
    library = prefix / "lib" / NAME
    shutil.copy(target / "libfanin_nccl.so", library)
    return library


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="release")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--prefix", type=Path, default=ROOT / "target" / "nccl")
    parser.add_argument("--symbols", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    if args.symbols:
        print("\n".join(symbols(args.symbols)))
        return 0
    print(build(args.profile, args.fast, args.prefix))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
