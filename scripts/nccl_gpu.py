#!/usr/bin/env python3
"""Runs NCCL itself, by PyTorch, over libnccl-net-fanin.so: two processes on one GPU that take each other for different machines.

Usage: nccl_gpu.py [--fanin PATH] [--library FILE] [--python PYTHON]

Builds library and switch with optimisation where none are given. Compares every element of allreduces, reduce-scatters and all-gathers of several
types and sizes, and looks in NCCL's log for what has carried them. Skipped, by name, where there is no GPU or no PyTorch with NCCL. Exits with 1 where
something is wrong. Python's standard library only; the processes need PyTorch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nccl_library
from c_tests import free_ports
from processes import Crew, Failed

ROOT = nccl_library.ROOT
RANKS = 2
LIMIT = 300.0
#: What a rank does; it is this file, called with a number.
SIZES = (1, 1_000, 65_536, 4_194_304)


def obstacle(python: str) -> str | None:
    """Why NCCL cannot run here, or None."""
    looks = "import torch; assert torch.cuda.is_available(), 'there is no GPU'; import torch.distributed as d; assert d.is_nccl_available(), 'PyTorch has no NCCL'"
    done = subprocess.run([python, "-c", looks], capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it does not start"])[-1]


def rank(number: int, store: str) -> None:
    """A process of the job."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=number, world_size=RANKS, device_id=torch.device("cuda:0"))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8):
        for size in SIZES:
            vectors = [(torch.arange(size * RANKS) % 7 + other).to(dtype).cuda() for other in range(RANKS)]
            expected = vectors[0] + vectors[1]
            whole = vectors[number].clone()
            dist.all_reduce(whole)
            assert torch.equal(whole, expected), f"allreduce of {size * RANKS} {dtype}"
            share = torch.empty(size, dtype=dtype, device="cuda")
            dist.reduce_scatter_tensor(share, vectors[number])
            assert torch.equal(share, expected[size * number : size * (number + 1)]), f"reduce-scatter of {size} {dtype}"
            gathered = torch.empty(size * RANKS, dtype=dtype, device="cuda")
            dist.all_gather_into_tensor(gathered, share)
            assert torch.equal(gathered, expected), f"all-gather of {size} {dtype}"
    torch.cuda.synchronize()
    dist.destroy_process_group()


def environment(library: Path, switch: str, number: int) -> dict[str, str]:
    """Of a rank: on a machine of its own, as NCCL sees it, with nothing but the plugin between."""
    algorithm = ";".join(f"{name}:collnetdirect" for name in ("allreduce", "reducescatter", "allgather"))
    return {
        "NCCL_NET_PLUGIN": str(library), "NCCL_COLLNET_ENABLE": "1", "NCCL_COLLNET_NODE_THRESHOLD": "2", "NCCL_HOSTID": f"host{number}",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IGNORE_DUPLICATE_GPU": "1",
        "NCCL_ALGO": algorithm, "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "lo", "FANIN_SWITCH": switch, "FANIN_TRANSPORT": "udp",
    }  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", type=Path)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rank", nargs=2, metavar=("RANK", "STORE"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.rank:
        rank(int(args.rank[0]), args.rank[1])
        return 0
    reason = obstacle(args.python)
    if reason:
        print(f"skipped: NCCL by PyTorch: {reason}")
        return 0
    library = args.library or nccl_library.build("release", True, ROOT / "target" / "nccl")
    if args.fanin is None:
        subprocess.run(["cargo", "build", "--locked", "--release", "-p", "fanin", "--no-default-features"], cwd=ROOT, check=True)
    fanin = args.fanin or ROOT / "target" / "release" / "fanin"
    deadline = time.monotonic() + LIMIT
    with tempfile.TemporaryDirectory(prefix="fanin-nccl-") as folder, Crew() as crew:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        switch = crew.start([str(fanin), "switch", "--listen", address])
        crew.wait_until_it_says(switch, address, deadline)
        command = [args.python, str(Path(__file__).resolve())]
        started = [crew.start([*command, "--rank", str(number), f"{folder}/store"], environment(library, address, number)) for number in range(RANKS)]
        try:
            said = [crew.finish(process, deadline) for process in started]
        except Failed as error:
            print("\n".join(crew.words(process) for process in started))
            print(f"wrong: {error}")
            return 1
    carried = [line for line in said[0].splitlines() if "NET/Fanin : rank" in line]
    print("\n".join(carried))
    if not any("leaves job" in line and " 0 collectives" not in line for line in carried):
        print(said[0])
        print("wrong: NCCL has not used the plugin's collectives")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
