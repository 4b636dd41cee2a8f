#!/usr/bin/env python3
"""Builds and runs workload W1 on ns-3 (peers/ns3/w1.cc).

Usage: ns3.py [--small] [ARGUMENT ...]     arguments are passed on; --small runs a network of 16 hosts and checks its counts.

ns-3 comes from the package libns3-dev, which is installed if this user is root. Python's standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import packages

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "peers" / "ns3" / "w1.cc"
PROGRAM = ROOT / "target" / "peers" / "ns3-w1"
HEADER = Path("/usr/include/ns3/point-to-point-net-device.h")
PACKAGE = "libns3-dev"
LIBRARIES = ["-lns3-point-to-point", "-lns3-network", "-lns3-core"]
SMALL = ["--leaves=4", "--hosts-per-leaf=4", "--spines=4", "--packets=64"]


def compiler() -> str | None:
    """The C++ compiler, by $CXX or by its usual names."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and shutil.which(name):
            return name
    return None


def obstacle() -> str | None:
    """Why ns-3 cannot be used here, or None if it can. Installs the package where that is allowed."""
    if compiler() is None:
        return "there is no C++ compiler"
    return packages.missing([PACKAGE], HEADER.exists)


def build() -> Path:
    """Compiles the program if its source is newer, and returns it."""
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < SOURCE.stat().st_mtime:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        # As ns-3's own optimised profile builds it.
        command = [compiler() or "c++", "-std=c++17", "-O3", "-DNDEBUG", "-Wall", "-Wextra", "-o", str(PROGRAM), str(SOURCE), *LIBRARIES]
        subprocess.run(command, check=True)
    return PROGRAM


def run(arguments: Sequence[str] = ()) -> dict:
    """Runs the program and returns what it measured."""
    done = subprocess.run([str(build()), *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def complaints(result: dict) -> list[str]:
    """What is wrong with the counts of a run in which nothing may be lost."""
    wrong = []
    if result["packet_hops"] != result["packet_hops_expected"]:
        wrong.append(f"{result['packet_hops']} packet-hops, expected {result['packet_hops_expected']}")
    if result["packets_delivered"] != result["packets"]:
        wrong.append(f"{result['packets_delivered']} packets delivered, expected {result['packets']}")
    if result["packets_dropped"] != 0:
        wrong.append(f"{result['packets_dropped']} packets dropped, expected none")
    return wrong


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    reason = obstacle()
    if reason is not None:
        print(f"skipped: ns-3 because {reason}")
        return 0
    small = "--small" in arguments
    result = run([*(SMALL if small else []), *(argument for argument in arguments if argument != "--small")])
    print(json.dumps(result))
    wrong = complaints(result) if small else []
    for complaint in wrong:
        print(f"error: {complaint}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
