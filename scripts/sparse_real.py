#!/usr/bin/env python3
"""Measures sparse allreduces of four workers in network namespaces, with `fanin switch`: summed by the switch, gathered as lists, and dense.

Usage: sparse_real.py [--fanin PROGRAM] [--example PROGRAM] [--rate RATE]

Needs root, and both programs: `cargo build --release -p fanin` and `cargo build --release -p fanin-comm --example sparse_cost`. Python's
standard library only.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from namespaces import NoNetwork, Star, obstacle
from processes import Crew, Failed

WORLD = 4
PORT = 7_700
PATIENCE = 600.0


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="target/release/fanin")
    parser.add_argument("--example", default="target/release/examples/sparse_cost")
    parser.add_argument("--rate", default="1gbit", help="of each worker's link, as tc takes it")
    args = parser.parse_args(arguments)
    if reason := obstacle():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    with Star(WORLD, args.rate) as star, Crew() as crew:
        address = f"{star.switch_address}:{PORT}"
        crew.start([*star.inside("switch"), args.fanin, "switch", "--listen", address, "--open", "--packets", "none"])
        ranks = []
        for rank in range(WORLD):
            environment = {"FANIN_RANK": str(rank), "FANIN_WORLD": str(WORLD), "FANIN_SWITCH": address, "FANIN_TRANSPORT": "udp"}
            ranks.append(crew.start([*star.inside(rank), args.example], environment))
        deadline = time.monotonic() + PATIENCE
        said = [crew.finish(rank, deadline) for rank in ranks]
        print(said[0], end="")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Failed, NoNetwork) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
