"""Open MPI from Debian: installed, compiled against, and run (peers/mpi/allreduce.c). Python's standard library only."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import packages
from measurement import only_row
from processes import Crew

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "peers" / "mpi" / "allreduce.c"
PROGRAM = ROOT / "target" / "peers" / "mpi-allreduce"
PACKAGES = ["openmpi-bin", "libopenmpi-dev"]


def obstacle() -> str | None:
    """Why Open MPI cannot be used here, or None if it can. Installs the packages where that is allowed."""
    reason = packages.missing(PACKAGES, lambda: bool(shutil.which("mpicc") and shutil.which("mpirun")))
    if reason is not None:
        return reason
    if major_version(version()) is None:
        return f"`mpirun --version` says {version()!r}, which is not Open MPI"
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < SOURCE.stat().st_mtime:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=c11", "-D_POSIX_C_SOURCE=199309L", "-O3", "-Wall", "-Wextra"]
        done = subprocess.run(["mpicc", *flags, "-o", str(PROGRAM), str(SOURCE)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"mpicc failed: {done.stderr.strip()[-300:]}"
    return None


def version() -> str:
    """What mpirun says of itself."""
    return subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout.strip()


def major_version(text: str) -> int | None:
    """The first number of Open MPI's version."""
    found = re.search(r"\(Open MPI\) (\d+)\.", text)
    return int(found[1]) if found else None


def command(world: int, size: int, iterations: int, transport: str, major: int) -> list[str]:
    """One measurement on this host; `transport` is `memory` or `tcp`."""
    # Its shared memory transport was called `vader` before version 5.
    layers = {"memory": ["self", "sm" if major >= 5 else "vader"], "tcp": ["self", "tcp"]}[transport]
    # More ranks than cores are allowed, and none is tied to one.
    start = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(world)]
    parameters = ["--mca", "pml", "ob1", "--mca", "btl", ",".join(layers)]
    if transport == "tcp":
        parameters += ["--mca", "btl_tcp_if_include", "lo"]
    return [*start, *parameters, str(PROGRAM), str(size), str(iterations)]


def run(world: int, size: int, iterations: int, transport: str, timeout_s: float) -> dict:
    """One measurement between ranks on this host."""
    deadline = time.monotonic() + timeout_s
    with Crew() as crew:
        started = crew.start(command(world, size, iterations, transport, major_version(version()) or 4))
        return only_row(crew.finish(started, deadline))
