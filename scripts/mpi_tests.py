#!/usr/bin/env python3
"""Builds libfanin_mpi and tests it with programs in C, C++ and Fortran, of Open MPI and of MPICH; none of them knows of Fanin.

Usage: mpi_tests.py [--fanin PATH] [--mpi4py]

Into target/mpi-tests, without optimisation. Each program runs without the library, where its results must be right as well, and with it:
ranks meet in shared memory, by UDP at rank 0, and at `fanin switch`, and the library says how many calls Fanin has served. `--mpi4py`
installs mpi4py of PyPI and runs its own tests of collectives, which must come out the same with the library as without. An MPI that is
not there and cannot be installed is skipped, by name. Exits with 1 where something is wrong. Python's standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mpi_library
import packages
from c_tests import free_ports
from processes import Crew, Failed

ROOT = mpi_library.ROOT
PREFIX = ROOT / "target" / "mpi-tests"
SOURCES = mpi_library.FOLDER / "tests"
DEBIAN = {"openmpi": ("openmpi-bin", "libopenmpi-dev"), "mpich": ("mpich", "libmpich-dev")}
RANKS = 4
LIMIT = 600.0
RIGHT = "all collectives are right"
#: What the library says at the end: how many calls of a kind Fanin has served.
SERVED = re.compile(r"(\w+) (\d+) \(\d+ bytes\) and (\d+)")
MPI4PY = "4.1.2"
#: Its tests of collectives.
MPI4PY_TESTS = ("cco_buf", "cco_nb_buf", "cco_pr_buf", "cco_buf_inter", "request", "grequest")


@dataclass
class Mpi:
    """An MPI that is here."""

    kind: str

    @property
    def suffix(self) -> str:
        """What Debian adds to the names of its programs, where there is another MPI."""
        return f".{self.kind}" if shutil.which(f"mpirun.{self.kind}") else ""

    def compiler(self, language: str) -> str:
        """`mpicc`, `mpicxx` or `mpifort`."""
        return f"{language}{self.suffix}"

    def run(self, program: Sequence[str], variables: Mapping[str, str], preload: bool = True, well: bool = True, ranks: int = RANKS) -> str:
        """What the ranks of a job and the library say; the job ends well, or not `well`."""
        given = [f"{name}={value}" for name, value in variables.items()]
        if preload:
            given.append(f"LD_PRELOAD={mpi_library.library(PREFIX, self.kind)}")
        options = ["--oversubscribe", "--bind-to", "none"] if self.kind == "openmpi" else []
        command = [f"mpirun{self.suffix}", *options, "-np", str(ranks), "env", *given, *program]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with Crew() as crew:
            started = crew.start(command, allowed)
            try:
                crew.finish(started, time.monotonic() + LIMIT)
            except Failed:
                if well or started.returncode is None:
                    raise
            return crew.words(started)


def obstacle() -> str | None:
    """Why no MPI can be used here, or None; installs both where that is allowed."""
    reasons = [packages.missing(names, lambda kind=kind: kind in mpi_library.compilers(())) for kind, names in DEBIAN.items()]
    return " and ".join(reason for reason in reasons if reason) if all(reasons) else None


def compiled(mpi: Mpi, folder: Path) -> dict[str, Path]:
    """The programs by name; Fortran's only where there is a compiler."""
    languages = {".c": ("mpicc", "-Wall", "-Wextra", "-pthread"), ".cpp": ("mpicxx",), ".f90": ("mpifort", "-w")}
    programs = {}
    for source in sorted(SOURCES.iterdir()):
        compiler, *options = languages[source.suffix]
        if source.suffix == ".f90" and packages.missing(["gfortran"], lambda: shutil.which("gfortran") is not None):
            print(f"skipped: {source.name}: there is no gfortran")
            continue
        programs[source.stem] = folder / f"{source.stem}-{mpi.kind}"
        command = [mpi.compiler(compiler), "-O1", *options, str(source), "-o", str(programs[source.stem])]
        subprocess.run(command, cwd=folder, check=True)
    return programs


def served(words: str) -> dict[str, tuple[int, int]]:
    """For each kind of call how many were served, and how many were left, as rank 0's library says."""
    line = next((line for line in words.splitlines() if "served and left" in line), "")
    return {name: (int(ours), int(theirs)) for name, ours, theirs in SERVED.findall(line)}


def told(counts: Mapping[str, tuple[int, int]]) -> str:
    """The same in words."""
    return ", ".join(f"{name} {ours}+{theirs}" for name, (ours, theirs) in counts.items())


def check(condition: bool, what: str, words: str = "") -> None:
    """Raises with these words where the condition does not hold."""
    if not condition:
        raise Failed(f"{what}: {words[-1500:]}" if words else what)


def right(mpi: Mpi, program: Sequence[str], where: str, settings: Mapping[str, str]) -> None:
    """Runs a program with the library, and looks whether Fanin has served it."""
    words = mpi.run(program, {"FANIN_MPI_SERVE": "all", "FANIN_MPI_VERBOSE": "1", **settings})
    check(RIGHT in words, f"{mpi.kind}: {program[0]}: {where}", words)
    counts = served(words)
    check(counts.get("allreduce", (0, 0))[0] > 0, f"{mpi.kind}: {program[0]}: {where}: Fanin has served nothing", words)
    named = " ".join([Path(program[0]).name, *program[1:]])
    print(f"right: {mpi.kind}: {named}: {where}: {told(counts)}")


def errors(mpi: Mpi, broken: Path, settings: Mapping[str, str]) -> None:
    """What goes wrong is told to all ranks, in the words of the communicator, in bounded time."""
    variables = {"FANIN_MPI_SERVE": "all", "FANIN_TIMEOUT": "3s", **settings}
    for what, expected in (("mismatch", "rank 1 calls allreduce of 99999 i32"), ("gone", "rank 2 has not called operation 1")):
        # Ranks end by MPI_Abort, and what mpirun makes of its code 0 is its own business.
        words = mpi.run([str(broken), what], variables, well=False)
        lines = [line for line in words.splitlines() if re.match(r"rank \d: ", line)]
        check(bool(lines) and all(expected in line and "again: an error" in line for line in lines), f"{mpi.kind}: {what}", words)
        print(f"right: {mpi.kind}: {what}: {lines[0]}")
    begin = time.monotonic()
    words = mpi.run([str(broken), "abort"], variables, well=False)
    check(time.monotonic() - begin < 30, f"{mpi.kind}: MPI_Abort", words)
    print(f"right: {mpi.kind}: MPI_Abort")


def left_to_the_mpi(mpi: Mpi, program: Path) -> None:
    """Where nobody says where ranks meet, and where they cannot meet, programs run as ever, with a reason."""
    words = mpi.run([str(program)], {"FANIN_MPI_VERBOSE": "1", "FANIN_MPI_SERVE": "none"})
    check(RIGHT in words and "nothing for ranks on one host" in words, f"{mpi.kind}: nothing is wanted", words)
    words = mpi.run([str(program)], {"FANIN_MPI_VERBOSE": "1"})
    check(RIGHT in words and served(words) == {"allreduce": (0, 5)}, f"{mpi.kind}: short vectors", words)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    words = mpi.run([str(program)], {"FANIN_MPI_SERVE": "all", "FANIN_SWITCH": nobody, "FANIN_TIMEOUT": "1s", "FANIN_FALLBACK": "error"})
    check(RIGHT in words and "not all ranks have joined" in words, f"{mpi.kind}: no switch", words)
    for variable, value in (("FANIN_MPI_SERVE", "allreduce:1KB"), ("FANIN_MPI_VERBOSE", "yes")):
        words = mpi.run([str(program)], {variable: value}, well=False)
        check(f'{variable} = "{value}": expected' in words and RIGHT not in words, f"{mpi.kind}: {variable}", words)
    print(f"right: {mpi.kind}: what is left to the MPI")


def foreign(mpis: Sequence[Mpi], programs: Mapping[str, Mapping[str, Path]]) -> None:
    """The library of one MPI, in front of another: an error before anything else."""
    for mine, other in ((mpis[0], mpis[1]), (mpis[1], mpis[0])):
        environment = os.environ | {"LD_PRELOAD": str(mpi_library.library(PREFIX, mine.kind))}
        done = subprocess.run(
            [str(programs[other.kind]["in_cxx"])], env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )
        check(
            done.returncode == 1 and "preload the other one" in done.stderr, f"the library of {mine.kind} before {other.kind}", done.stderr
        )
    print("right: the library of another MPI is refused")


def mpi4py_home() -> Path:
    """Where mpi4py is, installed from PyPI for either MPI, with its tests, which only its source has."""
    home = PREFIX / f"mpi4py-{MPI4PY}"
    pip = [str(home / "bin" / "python"), "-m", "pip"]
    if not (home / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([*pip, "install", "-q", "numpy", f"mpi4py=={MPI4PY}"], check=True)
        subprocess.run(
            [*pip, "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(home), f"mpi4py=={MPI4PY}"],
            check=True,
        )
        subprocess.run(["tar", "xzf", str(home / f"mpi4py-{MPI4PY}.tar.gz"), "-C", str(home)], check=True)
        (home / "installed").touch()
    return home


def of_mpi4py(mpi: Mpi, folder: Path) -> None:
    """mpi4py's own tests of collectives."""
    home = mpi4py_home()
    variables = {"FANIN_MPI_SERVE": "all", "FANIN_MPI_VERBOSE": "1", "MPI4PY_MPIABI": mpi.kind}
    if mpi.kind == "mpich":
        # Debian's library has another name than those of everybody else.
        library = subprocess.run(
            [mpi.compiler("mpicc"), "-print-file-name=libmpich.so.12"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if Path(library).exists():
            (folder / "libmpi.so.12").symlink_to(library)
            variables["LD_LIBRARY_PATH"] = str(folder)
    program = [str(home / "bin" / "python"), "-c", RUN_UNITTEST, str(home / f"mpi4py-{MPI4PY}"), *(f"test_{name}" for name in MPI4PY_TESTS)]
    counts = []
    for preload in (False, True):
        # MPICH's ranks do not give way to one another: no more of them than every machine has cores.
        words = mpi.run(program, variables, preload, ranks=2)
        found = re.findall(r"rank 0: (\d+) tests, (\d+) skipped, (\d+) wrong", words)
        check(bool(found), f"{mpi.kind}: mpi4py has not said how its tests went", words)
        counts.append(found[0])
    check(
        counts[0] == counts[1] and counts[1][2] == "0", f"{mpi.kind}: mpi4py: {counts[0]} without the library, {counts[1]} with it", words
    )
    numbers = served(words)
    check(numbers["allreduce"][0] > 0, f"{mpi.kind}: mpi4py: Fanin has served nothing", words)
    print(f"right: {mpi.kind}: mpi4py {MPI4PY}: {counts[1][0]} tests, {counts[1][1]} skipped; {told(numbers)}")


#: Its modules in one process a rank; rank 0 counts.
RUN_UNITTEST = """
import os, sys, unittest
os.chdir(sys.argv[1])
sys.path[:0] = [os.path.join(sys.argv[1], "test"), sys.argv[1]]
from mpi4py import MPI
suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])
result = unittest.TextTestRunner(stream=open(os.devnull, "w") if MPI.COMM_WORLD.rank else sys.stderr, verbosity=0).run(suite)
wrong = MPI.COMM_WORLD.allreduce(len(result.errors) + len(result.failures))
if MPI.COMM_WORLD.rank == 0:
    print(f"rank 0: {result.testsRun} tests, {len(result.skipped)} skipped, {wrong} wrong", flush=True)
"""


def run(fanin: str, folder: Path, kinds: Sequence[str], with_mpi4py: bool) -> None:
    """All tests; what is wrong is an exception."""
    mpis = [Mpi(kind) for kind in kinds]
    programs = {mpi.kind: compiled(mpi, folder) for mpi in mpis}
    with Crew() as crew:
        at_switch, at_rank_0 = (f"127.0.0.1:{port}" for port in free_ports(2))
        switch = crew.start([fanin, "switch", "--listen", at_switch])
        crew.wait_until_it_says(switch, at_switch, time.monotonic() + LIMIT)
        places = {
            "shared memory": {},
            "UDP, rank 0 as the switch": {"FANIN_RENDEZVOUS": at_rank_0, "FANIN_TRANSPORT": "udp"},
            "a switch": {"FANIN_SWITCH": at_switch, "FANIN_TRANSPORT": "udp"},
        }
        for mpi in mpis:
            own = programs[mpi.kind]
            for arguments in ([], ["threads"]):
                words = mpi.run([str(own["collectives"]), *arguments], {}, preload=False)
                check(RIGHT in words, f"{mpi.kind} without the library", words)
                # MPICH 4.0's own persistent collectives do not come through this.
                for where, settings in places.items():
                    right(mpi, [str(own["collectives"]), *arguments, "persistent"], where, settings)
            for name in ("in_cxx", "fortran", "fortran_2008"):
                if name in own:
                    right(mpi, [str(own[name])], "shared memory", {})
                    right(mpi, [str(own[name])], "a switch", places["a switch"])
            errors(mpi, own["broken"], places["a switch"])
            left_to_the_mpi(mpi, own["in_cxx"])
            if with_mpi4py:
                of_mpi4py(mpi, folder)
    if len(mpis) == 2:
        foreign(mpis, programs)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default=str(ROOT / "target" / "debug" / "fanin"))
    parser.add_argument("--mpi4py", action="store_true", help="also run mpi4py's own tests")
    args = parser.parse_args(arguments)
    reason = obstacle()
    found = mpi_library.build("dev", True, PREFIX)
    for kind in DEBIAN:
        if kind not in found:
            print(f"skipped: {kind}: {reason or 'it could not be installed'}")
    try:
        with tempfile.TemporaryDirectory(prefix="fanin-mpi-") as name:
            run(args.fanin, Path(name), list(found), args.mpi4py)
    except (Failed, subprocess.CalledProcessError) as error:
        print(f"wrong: {error}")
        return 1
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
