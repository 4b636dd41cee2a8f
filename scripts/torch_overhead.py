#!/usr/bin/env python3
"""Measures what an all_reduce of PyTorch costs with the backends fanin and gloo, side by side, on this machine.

Usage: torch_overhead.py [--ranks N] [--seconds S]

Needs PyTorch and Fanin: target/torch/bin/python scripts/torch_overhead.py, after scripts/torch_tests.py has made that environment.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

BACKENDS = ["fanin", "gloo"]
LENGTHS = [1, 256, 16_384, 262_144]
#: Rounds of a measurement; the best counts, since whatever else runs on the machine can only add to it.
ROUNDS = 50


def measure(pipe: Connection, backend: str, store: Path, rank: int, ranks: int, seconds: float) -> None:
    """A rank: for each length and way of calling, microseconds a call, and of these the processor's."""
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)
    results = []
    for length in LENGTHS:
        for in_background in (False, True):
            tensor = torch.zeros(length)
            calls = 50
            best = (float("inf"), float("inf"))
            for turn in range(ROUNDS + 1):
                dist.barrier()
                begin, processor = time.perf_counter(), time.process_time()
                for _ in range(calls):
                    work = dist.all_reduce(tensor, async_op=in_background)
                    if in_background:
                        work.wait()
                elapsed, busy = time.perf_counter() - begin, time.process_time() - processor
                if turn:
                    best = min(best, (elapsed / calls * 1e6, busy / calls * 1e6))
                else:
                    # All ranks must make the same number of calls.
                    number = torch.tensor([max(10, int(seconds / ROUNDS / elapsed * calls))])
                    dist.broadcast(number, src=0)
                    calls = int(number.item())
            results.append((length * 4, in_background, *best))
    dist.destroy_process_group()
    pipe.send(results)


def run(backend: str, ranks: int, seconds: float) -> list[tuple[int, bool, float, float]]:
    """Rank 0's results."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = context.Pipe(duplex=False)
        given = [(theirs, backend, Path(folder) / "store", rank, ranks, seconds) for rank in range(ranks)]
        processes = [context.Process(target=measure, args=arguments) for arguments in given]
        for process in processes:
            process.start()
        results: list[tuple[int, bool, float, float]] = ours.recv()
        for process in processes:
            process.join()
    return results


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a measurement")
    options = parser.parse_args()
    results = {backend: run(backend, options.ranks, options.seconds) for backend in BACKENDS}
    print(f"all_reduce of float32 on {options.ranks} ranks of this host, microseconds a call (and of rank 0's processor)\n")
    print("| bytes | in the background | " + " | ".join(BACKENDS) + " |\n|---|---|" + "---|" * len(BACKENDS))
    for row in zip(*results.values(), strict=True):
        figures = " | ".join(f"{elapsed:.1f} ({busy:.1f})" for _, _, elapsed, busy in row)
        print(f"| {row[0][0]} | {'yes' if row[0][1] else 'no'} | {figures} |")


if __name__ == "__main__":
    main()
