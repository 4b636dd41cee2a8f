#!/usr/bin/env python3
"""Builds libnccl-net-fanin.so and tests it without a GPU: ranks load it and call it as NCCL does (crates/nccl/tests/rank.py).

Usage: nccl_tests.py [--fanin PATH]

Without optimisation and without the compiler of custom operators, into target/nccl-tests. All versions of the interface; messages; collectives of all
types and operators, in shared memory, by UDP, at a switch and over a fabric of two leaves and two spines; what goes wrong. Exits with 1 where something is wrong.
Python's standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import nccl_library
from c_tests import free_ports
from processes import Crew, Failed

ROOT = nccl_library.ROOT
sys.path.insert(0, str(ROOT / "python" / "tests" / "torch"))

from fabrics import Fabric  # noqa: E402

PREFIX = ROOT / "target" / "nccl-tests"
RANK = ROOT / "crates" / "nccl" / "tests" / "rank.py"
#: How long the processes of a job may take, in seconds.
LIMIT = 120.0
#: Scenario, ranks, which of them end without a word.
FAILURES = (("peer_dies", 2), ("member_dies", 3), ("given_up", 3), ("unlike", 2))


def job(library: Path, ranks: int, version: int, scenario: str, settings: Mapping[str, str] | None = None, hosts: Sequence[str] = ()) -> list[str]:
    """What the ranks of a job, on those hosts of a fabric, were told by NCCL's log; all of them end well."""
    deadline = time.monotonic() + LIMIT
    with tempfile.TemporaryDirectory(prefix="fanin-nccl-") as folder, Crew() as crew:
        command = [sys.executable, str(RANK), str(library), folder]
        own = [{"FANIN_FABRIC_HOST": host} for host in hosts] or [{} for _ in range(ranks)]
        started = [crew.start([*command, str(rank), str(ranks), str(version), scenario], {**(settings or {}), **own[rank]}) for rank in range(ranks)]
        try:
            return [crew.finish(process, deadline) for process in started]
        except Failed as error:
            said = "\n".join(crew.words(process) for process in started)
            raise Failed(f"{scenario}, version {version}, {settings}: {error}\n{said}") from error


def path(said: Sequence[str]) -> str:
    """How vectors have travelled, by the log of rank 0."""
    found = re.search(r"rank 0 of \d+ in job \S+: (.*)", said[0])
    return found[1] if found else "no group"


def run(library: Path, fanin: str) -> None:
    """All tests; what is wrong is an exception."""
    for version in nccl_library.VERSIONS:
        job(library, 2, version, "messages")
        print(f"messages: version {version}")
        for transport in ("shm", "udp"):
            said = job(library, 3, version, "collectives", {"FANIN_TRANSPORT": transport})
            print(f"collectives: version {version}: {path(said)}")
    for scenario, ranks in FAILURES:
        for transport in ("shm", "udp"):
            job(library, ranks, nccl_library.VERSIONS[-1], scenario, {"FANIN_TRANSPORT": transport})
        print(f"{scenario}: as it must be")
    with Crew() as crew:
        at_switch = f"127.0.0.1:{free_ports(1)[0]}"
        switch = crew.start([fanin, "switch", "--listen", at_switch])
        crew.wait_until_it_says(switch, at_switch, time.monotonic() + LIMIT)
        said = job(library, 4, nccl_library.VERSIONS[-1], "collectives", {"FANIN_SWITCH": at_switch, "FANIN_TRANSPORT": "udp"})
        print(f"collectives: 4 ranks: {path(said)}")
    with Fabric(fanin, 4) as fabric:
        for system in ("canary", "tree"):
            settings = {"FANIN_FABRIC": fabric.manager, "FANIN_SYSTEM": system}
            print(f"collectives: {system}: {path(job(library, 4, nccl_library.VERSIONS[-1], 'collectives', settings, fabric.hosts))}")


def wrong_library(library: Path) -> list[str]:
    """Where the library is not as NCCL needs it."""
    found = nccl_library.symbols(library)
    wrong = [f"exported, and not NCCL's: {name}" for name in found if name not in nccl_library.listed()]
    wrong += [f"not exported: {name}" for name in nccl_library.listed() if name not in found]
    if not nccl_library.is_kept(library):
        wrong.append("the library may be unloaded while threads of its run")
    return wrong


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default=str(ROOT / "target" / "debug" / "fanin"))
    args = parser.parse_args(arguments)
    for name in [name for name in os.environ if name.startswith("FANIN_")]:
        del os.environ[name]
    library = nccl_library.build("dev", True, PREFIX)
    wrong = wrong_library(library)
    try:
        run(library, args.fanin)
    except (Failed, subprocess.CalledProcessError) as error:
        wrong.append(str(error))
    for words in wrong:
        print(f"wrong: {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
