#!/usr/bin/env python3
"""Times of MPI programs' collectives by libfanin_mpi beside the MPI's own, in turns, call by call, in the same processes
(mpi/bench/turns.c).

Usage: mpi_bench.py [--fanin PATH] [--prefix FOLDER] [--mpi KIND ...] [--rounds N] [--out FILE] CASE...

    links4, links8    4 or 8 network namespaces on a bridge, every link with 1 Gbit/s each way, a `fanin switch` in its own; needs root
    memory2, memory4  2 or 4 ranks on this host, in shared memory

The library is the one of `make mpi` (target/c). Each line has medians over the rounds, the median of the ratio within a round (the MPI's
time by Fanin's: above 1, Fanin is faster) and its quartiles, and the least times, which
other load of the machine changes least. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import mpi_library
import namespaces
from mpi_tests import Mpi
from processes import Crew

ROOT = mpi_library.ROOT
LINK_RATE, PORT = "1gbit", 7_200
LIMIT = 580.0
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SIZES = {
    "links": (1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20),
    "memory": (1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20),
}
COLLECTIVES = ("allreduce", "reduce", "bcast", "reduce_scatter", "allgather", "barrier")


def program(mpi: Mpi, folder: Path) -> Path:
    """The measurement, compiled."""
    to = folder / f"turns-{mpi.kind}"
    subprocess.run([mpi.compiler("mpicc"), "-O2", str(mpi_library.FOLDER / "bench" / "turns.c"), "-ldl", "-o", str(to)], check=True)
    return to


def agent(star: namespaces.Star, folder: Path) -> Path:
    """What an MPI calls in place of ssh: runs a command in the namespace of an address, as a host with a name of its own."""
    # Without dots: Open MPI takes what comes before one for the host's name.
    hosts = "\n".join(f"    {star.worker_address(rank)}) space={star.name(str(rank))} host=node{rank};;" for rank in range(star.workers))
    script = folder / "agent.sh"
    lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', "address=$1; shift", "case $address in", hosts, "esac"]
    lines.append('exec ip netns exec "$space" unshare --uts sh -c "hostname $host; $*"')
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    return script


def launcher(mpi: Mpi, star: namespaces.Star, folder: Path) -> list[str]:
    """How this MPI starts one rank in each namespace, from the first."""
    addresses = [star.worker_address(rank) for rank in range(star.workers)]
    inside = [*star.inside(0), "unshare", "--uts", "sh", "-c"]
    if mpi.kind == "openmpi":
        parameters = {
            "plm_rsh_agent": str(agent(star, folder)),
            "plm_rsh_no_tree_spawn": "1",
            "oob_tcp_if_include": namespaces.INTERFACE,
            "btl_tcp_if_include": namespaces.INTERFACE,
            "pml": "ob1",
            "btl": "self,tcp",
            # All namespaces share the cores.
            "mpi_yield_when_idle": "1",
        }
        given = [word for name, value in parameters.items() for word in ("--mca", name, value)]
        command = [f"mpirun{mpi.suffix}", *given, "--bind-to", "none", "--host", ",".join(f"{address}:1" for address in addresses)]
    else:
        command = [f"mpirun{mpi.suffix}", "-launcher", "ssh", "-launcher-exec", str(agent(star, folder)), "-iface", namespaces.INTERFACE]
        command += ["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", namespaces.INTERFACE, "-hosts", ",".join(addresses)]
    return [*inside, f'hostname node0; exec {shlex.join([*command, "-np", str(star.workers)])} "$@"', "launcher"]


def measured(command: Sequence[str]) -> list[dict]:
    """The lines of a run."""
    with Crew() as crew:
        words = crew.finish(crew.start(command, ALLOWED), time.monotonic() + LIMIT)
    return [json.loads(line) for line in words.splitlines() if line.startswith("{")]


def work(mpi: Mpi, options: argparse.Namespace, folder: Path, kind: str) -> list[str]:
    """The measurement with all of its arguments."""
    sizes = [str(size) for size in options.sizes or SIZES[kind]]
    return [str(program(mpi, folder)), str(options.rounds), *options.collectives, *sizes]


def on_links(mpi: Mpi, hosts: int, options: argparse.Namespace, folder: Path) -> list[dict]:
    """One rank in each of so many namespaces."""
    library = mpi_library.library(options.prefix, mpi.kind)
    with namespaces.Star(hosts, LINK_RATE) as star, Crew() as crew:
        address = f"{star.switch_address}:{PORT}"
        switch = crew.start([*star.inside("switch"), options.fanin, "switch", "--listen", address, "--open", "--packets", "none"])
        crew.wait_until_it_says(switch, address, time.monotonic() + 30)
        given = ["env", f"LD_PRELOAD={library}", f"FANIN_SWITCH={address}", "FANIN_TRANSPORT=udp", "FANIN_MPI_SERVE=all"]
        return measured([*launcher(mpi, star, folder), *given, *work(mpi, options, folder, "links")])


def in_memory(mpi: Mpi, ranks: int, options: argparse.Namespace, folder: Path) -> list[dict]:
    """So many ranks on this host."""
    more = ["--oversubscribe", "--bind-to", "none"] if mpi.kind == "openmpi" else []
    given = ["env", f"LD_PRELOAD={mpi_library.library(options.prefix, mpi.kind)}", "FANIN_MPI_SERVE=all"]
    return measured([f"mpirun{mpi.suffix}", *more, "-np", str(ranks), *given, *work(mpi, options, folder, "memory")])


def told(row: dict) -> str:
    """A line of a table."""
    unit = f"{row['bytes'] / 1024:>8.0f} KiB" if row["collective"] != "barrier" else " " * 12
    times = f"{row['fanin_s'] * 1e3:10.3f} ms {row['mpi_s'] * 1e3:10.3f} ms"
    spread = f"({row['low']:.2f} to {row['high']:.2f}, {row['rounds']} rounds)"
    least = f"least {row['fanin_least_s'] * 1e3:.3f} and {row['mpi_least_s'] * 1e3:.3f} ms"
    return f"  {row['collective']:15}{unit} {times} {row['ratio']:6.2f} {spread}; {least}; {row['wrong']} wrong"


def end_in_order(_number: int, _frame: object) -> None:
    """SIGTERM leaves as little behind as Ctrl-C."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default=str(ROOT / "target" / "release" / "fanin"))
    parser.add_argument("--prefix", type=Path, default=ROOT / "target" / "c")
    parser.add_argument("--mpi", action="append", choices=["openmpi", "mpich"], help="only these")
    parser.add_argument("--rounds", type=int, default=20, help="a fifth of these from 16 MiB on")
    parser.add_argument("--sizes", type=int, action="append", metavar="BYTES")
    parser.add_argument("--collectives", action="append", choices=COLLECTIVES, default=[])
    parser.add_argument("--out", type=Path, help="also add all lines to this file")
    parser.add_argument("cases", nargs="+", choices=["links4", "links8", "memory2", "memory4"])
    options = parser.parse_args(arguments)
    options.collectives = options.collectives or list(COLLECTIVES)
    signal.signal(signal.SIGTERM, end_in_order)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="fanin-mpi-") as name:
        for case in options.cases:
            for kind in options.mpi or mpi_library.compilers(()):
                print(f"{case}, {kind}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores: Fanin, the MPI, ratio", flush=True)
                run = on_links if case.startswith("links") else in_memory
                rows = run(Mpi(kind), int(case[-1]), options, Path(name))
                for row in rows:
                    print(told(row), flush=True)
                    wrong += row["wrong"]
                if options.out:
                    with options.out.open("a") as out:
                        out.writelines(json.dumps({"case": case, "mpi": kind, "load": os.getloadavg()[0], **row}) + "\n" for row in rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
