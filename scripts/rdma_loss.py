#!/usr/bin/env python3
"""Measures what losses cost sums inside RDMA connections: guests with the kernel's own RoCE around `fanin switch --transparent`, which sums, or
only forwards what each worker writes to its successor.

Usage: rdma_loss.py [--fanin PATH] [--elements N] [--operations N] [--out FILE] [LOSS ...]

A ring allreduce of the hosts sends 2 (n - 1) / n times the vector on each link, where a worker whose switch sums sends it once. So a time of it is
at least so many times that of the stream that the switch only forwards: that is the ring's column, and flatters the ring, whose steps wait for
each other. Guests are emulated, so that rows compare with each other and with nothing else. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import guests
import rdma
from processes import Failed

WORKERS = 3
LOSSES = (0.0, 1e-4, 1e-3, 1e-2)


def measured(fanin: str, image: Path, case: rdma.Case) -> dict:
    """A run of one case: goodput of all operations after the first, in Mb/s, and the median and the slowest of them in seconds."""
    rdma.CASES["measured"] = case
    row = rdma.run_case("measured", fanin, WORKERS, image)
    if not row["expected"]:
        raise Failed(f"loss {case.loss}: {row['wrong']} elements are wrong, {row['unsummed']} messages are no sums")
    times = row["operation_seconds"][1:]
    goodput = 4 * 8 * case.elements * len(times) / sum(times) / 1e6
    return {"goodput_mbit_s": goodput, "median_s": statistics.median(times), "slowest_s": max(times), "sent_back": row["switch"].get("rdma_sent_back")}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="target/release/fanin")
    parser.add_argument("--elements", type=int, default=300_000)
    parser.add_argument("--operations", type=int, default=11)
    parser.add_argument("--out", help="file for the rows as JSON")
    parser.add_argument("losses", nargs="*", type=float, metavar="LOSS", help="shares of frames that are lost on their way into the switch")
    args = parser.parse_args(arguments)
    if reason := guests.obstacle():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    rows = []
    ring = 2 * (WORKERS - 1) / WORKERS
    print("| loss | the switch, Mb/s | one stream, Mb/s | ring at most, Mb/s | slowest operation: switch, s | stream, s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="fanin-rdma-") as name:
        image = guests.initramfs(rdma.build(Path(name)), Path(name))
        for loss in args.losses or LOSSES:
            case = rdma.Case(loss=loss, elements=args.elements, operations=args.operations, timeout_s=300.0)
            try:
                summed = measured(args.fanin, image, case)
                plain = measured(args.fanin, image, rdma.dataclasses.replace(case, summed=False))
            except Failed as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            rows.append({"loss": loss, "switch": summed, "stream": plain})
            cells = [f"{loss:g}", f"{summed['goodput_mbit_s']:.1f}", f"{plain['goodput_mbit_s']:.1f}", f"{plain['goodput_mbit_s'] / ring:.1f}"]
            print("| " + " | ".join([*cells, f"{summed['slowest_s']:.2f}", f"{plain['slowest_s']:.2f}"]) + " |", flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
