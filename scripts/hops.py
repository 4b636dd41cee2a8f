#!/usr/bin/env python3
"""Counts what a packet-hop of the simulator costs in instructions, and fails where it has become dearer.

Usage: hops.py [--write CHANGE]

Each cell of crates/simulation/benches/hops.rs runs in two sizes under valgrind, which counts instructions: no clock, so the same on a busy
machine. The difference, over the hops by which they differ, is free of set-up. Fails where a cell takes 3 % more than the last row of
docs/hops.csv says. `--write` adds a row there for a change, and renews the table in docs/performance.md. Python's standard library only.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import packages

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "hops.csv"
PAGE = ROOT / "docs" / "performance.md"
MARKS = ("<!-- instructions of a hop: made by scripts/hops.py -->", "<!-- end of instructions of a hop -->")

#: Bytes that each host reduces or sends, in a shorter and a longer run of each cell.
CELLS = {"fig08": (64 << 10, 1 << 20), "tree": (64 << 10, 512 << 10), "w1": (4 << 10, 64 << 10)}
#: So much more than before is too much.
TOLERANCE = 0.03


class HopsError(Exception):
    """What kept a measurement from being made."""


def obstacle() -> str | None:
    """Why nothing can count instructions here, or None; installs valgrind where that is allowed."""
    return packages.missing(["valgrind"], lambda: shutil.which("valgrind") is not None)


def program() -> str:
    """Builds the cells with optimisation; gives the program's path."""
    command = ["cargo", "bench", "--locked", "--no-run", "--message-format=json", "-p", "fanin-simulation", "--bench", "hops"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise HopsError(f"`{' '.join(command)}` failed")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    made = [message["executable"] for message in messages if message.get("executable") and message["target"]["name"] == "hops"]
    if len(made) != 1:
        raise HopsError(f"`{' '.join(command)}` made {len(made)} programs in place of one")
    return made[0]


def parse(output: str, report: str) -> tuple[int, int, int]:
    """Instructions, packet-hops and events of a run, from what it and valgrind print."""
    ran = re.search(r"^(\d+) packet-hops, (\d+) events$", output, re.MULTILINE)
    counted = re.search(r"I\s+refs:\s+([\d,]+)", report)
    if ran is None or counted is None:
        raise HopsError(f"expected a count of instructions and of packet-hops, not {output!r} and {report[-300:]!r}")
    return int(counted[1].replace(",", "")), int(ran[1]), int(ran[2])


def count(executable: str, cell: str, size: int) -> tuple[int, int, int]:
    """Runs a cell under valgrind."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", executable, cell, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HopsError(f"`{' '.join(command)}` failed: {done.stderr[-500:]}")
    return parse(done.stdout, done.stderr)


def slope(shorter: tuple[int, int, int], longer: tuple[int, int, int]) -> tuple[float, float]:
    """Instructions and events of one more hop."""
    instructions, hops, events = (after - before for before, after in zip(shorter, longer, strict=True))
    if hops <= 0:
        raise HopsError(f"the longer run made {longer[1]} hops and the shorter one {shorter[1]}")
    return instructions / hops, events / hops


def recorded() -> list[dict[str, str]]:
    """The rows of the record: a change each, the oldest first."""
    with RECORD.open(newline="") as file:
        return list(csv.DictReader(file))


def dearer(known: dict[str, str], found: dict[str, float]) -> list[str]:
    """What is to be said of cells that cost too much more than the record says."""
    said = []
    for cell, now in found.items():
        before = float(known[cell])
        if now > before * (1 + TOLERANCE):
            said.append(f"{cell}: {now:.1f} instructions a hop, {before:.1f} before ({now / before - 1:+.1%}, at most {TOLERANCE:+.0%})")
    return said


def table(rows: Sequence[dict[str, str]]) -> str:
    """The record as a table of the page, the newest row first."""
    lines = [f"| change | {' | '.join(f'`{cell}`' for cell in CELLS)} |", "|---" * (1 + len(CELLS)) + "|"]
    for row in reversed(rows):
        lines.append(f"| {row['change']} | {' | '.join(f'{float(row[cell]):.0f}' for cell in CELLS)} |")
    return "\n".join(lines)


def with_table(page: str, rows: Sequence[dict[str, str]]) -> str:
    """The page with the record's table between its marks."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{table(rows)}\n{MARKS[1]}{after}"


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", metavar="CHANGE", help="add a row for this change to docs/hops.csv and renew the page's table")
    options = parser.parse_args(arguments)
    why = obstacle()
    if why is not None:
        print(f"error: {why}", file=sys.stderr)
        return 1
    try:
        executable = program()
        found = {}
        for cell, sizes in CELLS.items():
            shorter, longer = (count(executable, cell, size) for size in sizes)
            found[cell], events = slope(shorter, longer)
            print(f"{cell}: {found[cell]:.1f} instructions and {events:.3f} events a hop, of {longer[1] - shorter[1]} hops")
    except HopsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.write:
        rows = [*recorded(), {"change": options.write, **{cell: f"{value:.1f}" for cell, value in found.items()}}]
        with RECORD.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["change", *CELLS], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        PAGE.write_text(with_table(PAGE.read_text(), rows))
        return 0
    said = dearer(recorded()[-1], found)
    for line in said:
        print(f"error: {line}", file=sys.stderr)
    if said:
        print("If it is worth it, `scripts/hops.py --write CHANGE` records it, with what was changed.", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
