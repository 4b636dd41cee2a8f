#!/usr/bin/env python3
"""Measures workload W1 on Fanin's simulator and on ns-3, in turns on the same machine, and prints both and their ratio.

Both count packet-hops (a packet leaving a transmitter) per second of CPU time of one thread's event loop. Instructions per hop are the
difference between a longer and a shorter run, so that building the network is not in it. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import ns3

ROOT = Path(__file__).resolve().parent.parent
WORKLOAD = "w1"
PEER = "ns-3"
FULL_PACKETS = 1024
#: Packets per host of the two runs whose difference gives instructions per hop: the network is that of W1, the time is bearable.
SHORT_PACKETS, LONG_PACKETS = 32, 64


class BenchError(Exception):
    """A run failed or printed something that is no measurement."""


def fanin_program() -> Path:
    """The program as it is handed out, of the profile `dist`; that of FANIN_PROFILE where it is given."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / {"dev": "debug"}.get(profile := os.environ.get("FANIN_PROFILE", "dist"), profile) / "fanin"


def parse_measurement(text: str) -> dict:
    """The one measurement of W1 in what a program printed: an object, or a list with one."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BenchError(f"not JSON: {error}") from error
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, dict) or found.get("name") != WORKLOAD:
        raise BenchError(f"expected one measurement of {WORKLOAD}, found {text.strip()}")
    return found


def fanin_command(payload: str, packets: int) -> list[str]:
    """One run of W1 on Fanin's simulator."""
    bench = [str(fanin_program()), "bench", "sim", "--only", WORKLOAD, "--payload", payload]
    return [*bench, "--packets", str(packets), "--repetitions", "1", "--format", "json"]


def measure(command: Sequence[str]) -> dict:
    """Runs one measurement."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return parse_measurement(done.stdout)


def instruction_counter() -> Callable[[Sequence[str]], tuple[int, str]] | None:
    """A function that runs a command and returns its user-space instructions and output, or None where nothing can count them."""
    if shutil.which("perf"):
        probe = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True, check=False)
        if re.search(r"^\d+,", probe.stderr, re.MULTILINE):
            return count_by_perf
    return count_by_callgrind if shutil.which("valgrind") else None


def count_by_perf(command: Sequence[str]) -> tuple[int, str]:
    """Instructions as the processor counts them."""
    with tempfile.NamedTemporaryFile("r") as report:
        full = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", report.name, "--", *command]
        done = subprocess.run(full, capture_output=True, text=True, check=True)
        match = re.search(r"^(\d+),", report.read(), re.MULTILINE)
    if match is None:
        raise BenchError("perf printed no count")
    return int(match[1]), done.stdout


def count_by_callgrind(command: Sequence[str]) -> tuple[int, str]:
    """Instructions as valgrind executes them."""
    full = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    done = subprocess.run(full, capture_output=True, text=True, check=True)
    match = re.search(r"Collected : (\d+)", done.stderr)
    if match is None:
        raise BenchError("callgrind printed no count")
    return int(match[1]), done.stdout


def instructions_per_hop(count: Callable[[Sequence[str]], tuple[int, str]], command: Callable[[int], list[str]]) -> float:
    """Instructions of one more hop; `command` takes the packets that each host sends."""
    points = []
    for packets in (SHORT_PACKETS, LONG_PACKETS):
        instructions, output = count(command(packets))
        points.append((instructions, parse_measurement(output)["packet_hops"]))
    (instructions_a, hops_a), (instructions_b, hops_b) = points
    if hops_b <= hops_a:
        raise BenchError(f"{LONG_PACKETS} packets a host made {hops_b} hops and {SHORT_PACKETS} made {hops_a}")
    return (instructions_b - instructions_a) / (hops_b - hops_a)


def summary(results: dict[str, list[dict]], instructions: dict[str, float]) -> str:
    """The table that is printed: medians, the range of the runs, and how many times faster the first one is."""
    lines = [f"{'simulator':<15} {'packet-hops per CPU-second':>27} {'lowest to highest':>28} {'instructions a hop':>20} {'times ns-3':>12}"]
    medians = {name: statistics.median(run["packet_hops_per_cpu_s"] for run in runs) for name, runs in results.items()}
    base = medians[PEER]
    for name, runs in results.items():
        rates = [run["packet_hops_per_cpu_s"] for run in runs]
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        counted = f"{instructions[name]:,.0f}" if name in instructions else "not counted"
        lines.append(f"{name:<15} {medians[name]:>27,.0f} {spread:>28} {counted:>20} {medians[name] / base:>12.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=5, help="how many times each one runs (default: 5)")
    parser.add_argument("--no-instructions", action="store_true", help="do not count instructions, which takes a minute")
    parser.add_argument("--out", type=Path, help="also write all runs to this JSON file")
    options = parser.parse_args(arguments)
    if options.pairs < 1:
        parser.error("--pairs: expected at least 1")
    reason = ns3.obstacle()
    if reason is not None:
        print(f"skipped: ns-3 because {reason}")
        return 0
    peer = str(ns3.build())
    commands: dict[str, Callable[[int], list[str]]] = {
        "fanin": lambda packets: fanin_command("length", packets),
        "fanin, census": lambda packets: fanin_command("census", packets),
        PEER: lambda packets: [peer, f"--packets={packets}"],
    }
    results: dict[str, list[dict]] = {name: [] for name in commands}
    instructions: dict[str, float] = {}
    try:
        for pair in range(options.pairs):
            # In turns, and from either end: whatever else slows the machine down hits all.
            for name in list(commands) if pair % 2 == 0 else reversed(commands):
                results[name].append(measure(commands[name](FULL_PACKETS)))
                print(f"{name}: {results[name][-1]['packet_hops_per_cpu_s']:,.0f} packet-hops per CPU-second", file=sys.stderr, flush=True)
        counter = None if options.no_instructions else instruction_counter()
        if counter is not None:
            instructions = {name: instructions_per_hop(counter, command) for name, command in commands.items()}
    except (BenchError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(summary(results, instructions))
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"runs": results, "instructions_per_hop": instructions}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
