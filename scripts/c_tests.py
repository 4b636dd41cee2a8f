#!/usr/bin/env python3
"""Builds libfanin and tests it from C, C++ and Fortran: header, symbols, every function, the examples.

Usage: c_tests.py [--fanin PATH]

Into target/c-tests, without optimisation and without the compiler of custom operators. The header is compared with what cbindgen makes of the
crate, the symbols with crates/c/abi/fanin.map. Ranks meet in shared memory, by UDP, and at `fanin switch`. Fortran is skipped, by name, where there
is no gfortran and none can be installed. Exits with 1 where something is wrong. Python's standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import c_library
import packages
from processes import Crew, Failed

ROOT = c_library.ROOT
PREFIX = ROOT / "target" / "c-tests"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-g")
#: How long processes may take, in seconds.
LIMIT = 120.0


def compiled(folder: Path, compiler: Sequence[str], sources: Sequence[Path], static: bool = False) -> Path:
    """A program."""
    program = folder / (sources[-1].stem + sources[-1].suffix.replace(".", "-") + ("-static" if static else ""))
    library = [str(PREFIX / "lib" / "libfanin.a"), *c_library.LIBRARIES] if static else ["-L", str(PREFIX / "lib"), "-lfanin", f"-Wl,-rpath,{PREFIX / 'lib'}"]
    command = [*compiler, *map(str, sources), "-I", str(PREFIX / "include"), *library, "-o", str(program)]
    subprocess.run(command, cwd=folder, check=True)
    return program


def ranks(program: Sequence[str], world: int, settings: Mapping[str, str], left_out: Sequence[int] = ()) -> list[str]:
    """What the processes of a job have written; all of them end well."""
    deadline = time.monotonic() + LIMIT
    with Crew() as crew:
        started = [crew.start(program, {"FANIN_RANK": str(rank), "FANIN_WORLD": str(world), **settings}) for rank in range(world)]
        return [crew.finish(process, deadline) for rank, process in enumerate(started) if rank not in left_out]


def wrong_symbols() -> list[str]:
    """Where the library and the list of its symbols differ."""
    found = c_library.symbols(PREFIX / "lib" / "libfanin.so")
    expected = sorted(f"{name}@@FANIN_0.2" for name in c_library.listed())
    header = c_library.HEADER.read_text()
    wrong = [f"{name}: only in the library" for name in found if name not in expected]
    wrong += [f"{name}: not in the library" for name in expected if name not in found]
    return wrong + [f"{name}: not in fanin.h" for name in c_library.listed() if f"{name}(" not in header]


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback device that nobody has."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [held.getsockname()[1] for held in sockets]


def meetings(fanin: str, crew: Crew) -> list[tuple[str, Mapping[str, str]]]:
    """Where ranks meet: at rank 0 in shared memory and by UDP, and at a switch."""
    at_switch, at_rank_0 = (f"127.0.0.1:{port}" for port in free_ports(2))
    switch = crew.start([fanin, "switch", "--listen", at_switch])
    crew.wait_until_it_says(switch, at_switch, time.monotonic() + LIMIT)
    return [
        ("shared memory", {"FANIN_RENDEZVOUS": at_rank_0, "FANIN_TRANSPORT": "shm"}),
        ("UDP, rank 0 as the switch", {"FANIN_RENDEZVOUS": at_rank_0, "FANIN_TRANSPORT": "udp"}),
        ("a switch", {"FANIN_SWITCH": at_switch, "FANIN_TRANSPORT": "udp"}),
    ]


def on_the_page() -> str:
    """The program that the documentation shows."""
    page = (ROOT / "docs" / "c.md").read_text()
    return page.split("```c\n")[1].split("```")[0]


def fortran() -> str | None:
    """Why there is no Fortran, or None."""
    return packages.missing(["gfortran"], lambda: shutil.which("gfortran") is not None)


def run(fanin: str, folder: Path) -> None:
    """All tests; what is wrong is an exception."""
    examples, tests = ROOT / "examples" / "c", ROOT / "crates" / "c" / "tests"
    border = compiled(folder, ["cc", "-std=c99", *STRICT], [tests / "border.c"])
    still = compiled(folder, ["cc", "-std=c99", *STRICT], [tests / "border.c"], static=True)
    example = compiled(folder, ["cc", "-std=c99", *STRICT], [examples / "sum.c"])
    (folder / "page.c").write_text(on_the_page())
    page = compiled(folder, ["cc", "-std=c99", *STRICT], [folder / "page.c"])
    if shutil.which("c++"):
        compiled(folder, ["c++", "-std=c++11", "-Wall", "-Werror"], [tests / "header.cpp"])
    else:
        print("skipped: C++: there is no c++")
    alone = {key: value for key, value in os.environ.items() if not key.startswith("FANIN_")}
    for program in (border, still):
        print(subprocess.run([str(program)], check=True, capture_output=True, text=True, env=alone).stdout.strip(), f"({program.name})")
    programs = [example, page]
    reason = fortran()
    if reason:
        print(f"skipped: Fortran: {reason}")
    else:
        module = PREFIX / "include" / "fanin.f90"
        programs.append(compiled(folder, ["gfortran", "-std=f2008", "-Wall", "-Wextra", "-Werror"], [module, examples / "sum.f90"]))
    with Crew() as crew:
        for name, settings in meetings(fanin, crew):
            ranks([str(border), "collectives"], 4, {**settings, "FANIN_JOB": "collectives"})
            print(f"collectives: {name}")
            # The mismatch is told in the same words at all ranks.
            said = set(ranks([str(border), "mismatch"], 3, {**settings, "FANIN_JOB": "mismatch"}))
            print(f"mismatch: {name}: {said.pop().strip()}")
            said = set(ranks([str(border), "killed"], 4, {**settings, "FANIN_JOB": "killed"}, left_out=[2]))
            print(f"killed: {name}: {said.pop().strip()}")
            for program in programs:
                lines = ranks([str(program)], 3, {**settings, "FANIN_JOB": program.name})
                print(f"{program.name}: {name}: {lines[0].strip()}")


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default=str(ROOT / "target" / "debug" / "fanin"))
    args = parser.parse_args(arguments)
    c_library.build("dev", True, PREFIX)
    wrong = wrong_symbols()
    if c_library.main(["header", "--check"]) != 0:
        wrong.append("the header")
    try:
        with tempfile.TemporaryDirectory(prefix="fanin-c-") as name:
            run(args.fanin, Path(name))
    except (Failed, subprocess.CalledProcessError) as error:
        wrong.append(str(error))
    for words in wrong:
        print(f"wrong: {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
