"""Trains a small network on made-up data, its parameters sharded over several processes by FSDP2.

    torchrun --nproc-per-node 2 examples/train_fsdp.py --backend fanin

Every step gathers the parameters (`all_gather_into_tensor`) and sums the gradients, of which each rank gets its shard
(`reduce_scatter_tensor`). Gradients are rounded to multiples of a power of two, so that sums of them are exact in any order: with up to
16 ranks, and as many as a power of two, every backend gives parameters of the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

#: Gradients are multiples of this, up to `LARGEST`: a sum of 16, and its quarter, has 24 bits at most.
GRID = 2.0**-18
LARGEST = 4.0


class OnGrid(torch.autograd.Function):
    """Nothing on the way forward; gradients are rounded on the way back, before they are summed."""

    @staticmethod
    def forward(_context: Any, parameter: Tensor) -> Tensor:
        """The parameter itself."""
        return parameter.view_as(parameter)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        """The nearest gradient whose sums are exact."""
        return (gradient.clamp(-LARGEST, LARGEST) / GRID).round() * GRID


class Layer(nn.Linear):
    """A layer whose gradients have exact sums."""

    def forward(self, given: Tensor) -> Tensor:
        """As that of any linear layer."""
        return nn.functional.linear(given, OnGrid.apply(self.weight), OnGrid.apply(self.bias))


def network() -> nn.Sequential:
    """Three layers, about 20 000 parameters; the same at all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(Layer(32, 128), nn.ReLU(), Layer(128, 112), nn.ReLU(), Layer(112, 10))


def fingerprint(model: nn.Module) -> str:
    """The bits of all parameters, put together from the shards of all ranks."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        digest.update(whole.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Trains, and prints what has come of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="fanin", help="fanin or gloo")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    model = network()
    for layer in model:
        if isinstance(layer, Layer):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    random = torch.Generator().manual_seed(100 + rank)
    teacher = torch.randn(32, 10, generator=torch.Generator().manual_seed(1))
    first = last = 0.0
    for step in range(options.steps):
        given = torch.randn(64, 32, generator=random)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(given), (given @ teacher).argmax(1))
        loss.backward()
        optimizer.step()
        last = loss.item()
        first = first or last
        if rank == 0:
            print(f"step {step + 1}: loss {last:.4f}", flush=True)

    prints: list[str | None] = [None] * world
    dist.all_gather_object(prints, fingerprint(model))
    assert len(set(prints)) == 1, f"ranks have different parameters: {prints}"
    if rank == 0:
        if options.backend == "fanin":
            from fanin.torch import report

            print(f"rank 0 by {report().path}", flush=True)
        print(f"loss {first:.4f} to {last:.4f}, the same parameters on {world} ranks: {prints[0]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
