#!/usr/bin/env python3
"""One rank of an allreduce of float32 by torch.distributed's gloo backend, measured as `fanin bench allreduce --format json` does.

Started once for each rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set (and GLOO_SOCKET_IFNAME where there are several
interfaces). Rank 0 prints an array with an object for each size: the slowest rank's mean time, the processor time of all ranks, and how
many elements were wrong.

Usage: allreduce.py [--sizes BYTES[,BYTES...]] [--iterations N]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist


def element(rank: int, elements: int) -> torch.Tensor:
    """A rank's vector: zeros and ones, so that every order of summands gives the same bits."""
    index = torch.arange(elements, dtype=torch.int64)
    return ((index * 7 + rank * 3) % 11 == 0).to(torch.float32)


def agree(value: float, op: dist.ReduceOp) -> float:
    """A number from all ranks."""
    box = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(box, op=op)
    return float(box[0])


def measure(size: int, iterations: int | None) -> dict:
    """Allreduces one vector again and again, and checks what the last call gave."""
    rank, world = dist.get_rank(), dist.get_world_size()
    elements = size // 4
    source = element(rank, elements)
    work = torch.empty_like(source)

    def call() -> None:
        # In place, which is gloo's only way.
        dist.all_reduce(work)

    work.copy_(source)
    call()
    if iterations is None:
        begin = time.perf_counter()
        for _ in range(3):
            call()
        each = (time.perf_counter() - begin) / 3
        iterations = int(agree(max(5.0, min(5_000.0, 0.5 / each)) if rank == 0 else 0.0, dist.ReduceOp.SUM))
    # A sum in place is the next call's input, so it is zeros that are timed: these stay zeros. What is checked is one more call.
    work.zero_()
    dist.barrier()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(iterations):
        call()
    seconds, cpu = (time.perf_counter() - begin) / iterations, time.process_time() - cpu
    work.copy_(source)
    call()
    expected = sum(element(peer, elements) for peer in range(world))
    wrong = int(torch.count_nonzero(work != expected))
    slowest = agree(seconds, dist.ReduceOp.MAX)
    algbw = elements * 4 / slowest / 1e6
    return {
        "size_bytes": elements * 4,
        "iterations": iterations,
        "time_us": slowest * 1e6,
        "algbw_mb_s": algbw,
        "busbw_mb_s": algbw * 2 * (world - 1) / world,
        "wrong": int(agree(wrong, dist.ReduceOp.SUM)),
        "cpu_s_per_gib": agree(cpu, dist.ReduceOp.SUM) / iterations / (elements * 4 / 2**30),
    }


def main() -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="4096,67108864", help="bytes, with commas between them")
    parser.add_argument("--iterations", type=int, help="calls for each size (default: as many as take half a second, at least 5)")
    options = parser.parse_args()
    # Gloo has threads of its own; those of tensor operations would only compete with the other ranks.
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        rows = [measure(int(size), options.iterations) for size in options.sizes.split(",")]
        dist.barrier()
        if dist.get_rank() == 0:
            print(json.dumps(rows))
    finally:
        dist.destroy_process_group()
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        sys.exit("error: RANK and WORLD_SIZE are not set: scripts/bench_collectives.py starts this program once for each rank")
    sys.exit(main())
