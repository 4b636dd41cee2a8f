#!/usr/bin/env python3
"""Runs examples/transparent/worker.py as three workers around a transparent switch, and then three of whom one dies, and prints what they say.

Usage: transparent_example.py [--fanin PROGRAM]

Needs root. Python's standard library only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from namespaces import Star, obstacle
from processes import Crew, Failed

WORKER = Path(__file__).resolve().parent.parent / "examples" / "transparent" / "worker.py"
WORLD = 3
PATIENCE = 60.0


def place(star: Star, rank: int, port: int) -> list[str]:
    """Where a worker stands."""
    successor = star.worker_address((rank + 1) % WORLD)
    return ["--rank", str(rank), "--world", str(WORLD), "--listen", f"{star.worker_address(rank)}:{port}", "--successor", f"{successor}:{port}"]


def wait_for_a_message(star: Star) -> None:
    """Until every worker is in the middle of one: each has been sent more than meeting takes, and less than a message."""
    deadline = time.monotonic() + PATIENCE
    before = [star.sent_to(rank) for rank in range(WORLD)]
    while min(star.sent_to(rank) - before[rank] for rank in range(WORLD)) < 1 << 20:
        if time.monotonic() >= deadline:
            raise Failed(f"no vector has passed within {PATIENCE} s")
        time.sleep(0.05)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="target/release/fanin")
    args = parser.parse_args(arguments)
    if reason := obstacle():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    with Star(WORLD, "200mbit", joined=False) as star, Crew() as crew:
        switch = crew.start([*star.inside("bridge"), args.fanin, "switch", "--transparent", ",".join(star.ports)])
        crew.wait_until_it_says(switch, "joins ", time.monotonic() + PATIENCE)
        workers = [crew.start([*star.inside(rank), sys.executable, str(WORKER), *place(star, rank, 7_700)]) for rank in range(WORLD)]
        for worker in workers:
            print(crew.finish(worker, time.monotonic() + PATIENCE), end="")
        bench = [args.fanin, "bench", "stream", "--sizes", "64MiB", "--iterations", "20", "--timeout", "20"]
        workers = [crew.start([*star.inside(rank), *bench, *place(star, rank, 7_701), "--ring", "2"]) for rank in range(WORLD)]
        wait_for_a_message(star)
        # `ip netns exec` becomes the command that it starts.
        workers[1].kill()
        start = time.monotonic()
        for rank in (0, 2):
            try:
                crew.finish(workers[rank], start + PATIENCE)
                raise AssertionError(f"rank {rank} has ended well without rank 1")
            except Failed as error:
                words = str(error).split("error: ")[-1].strip()
                print(f"rank {rank}: {words} ({time.monotonic() - start:.1f} s after rank 1 died)")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Failed, AssertionError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
