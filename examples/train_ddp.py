"""Trains a small network on scikit-learn's handwritten digits, on several processes.

    torchrun --nproc-per-node 2 examples/train_ddp.py --backend fanin

With `--topk 0.01` each rank sends a hundredth of its gradients in each step, and the rest later.

With `--exact` gradients are rounded to multiples of a power of two, so that sums have the same bits in any order: with up to 16 ranks,
and as many as a power of two.

With `--checkpoint FILE` it goes on where an earlier run has stopped; so `torchrun --max-restarts 3` survives processes that die.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def digits() -> tuple[TensorDataset, Tensor, Tensor]:
    """1 797 images of 8 x 8 pixels: three quarters to train with, the rest to test with."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    train = TensorDataset(torch.tensor(train_x, dtype=torch.float32), torch.tensor(train_y))
    return train, torch.tensor(test_x, dtype=torch.float32), torch.tensor(test_y)


def network() -> nn.Module:
    """Two convolutions and two layers; about 22 000 parameters."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def on_grid(gradient: Tensor) -> Tensor:
    """The nearest gradient whose sums over 16 ranks, and their sixteenth parts, have 24 bits at most."""
    return (gradient.clamp(-4.0, 4.0) * 2.0**18).round() / 2.0**18


def fingerprint(model: nn.Module) -> str:
    """The bits of all parameters."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Trains, and prints what has come of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="fanin", help="fanin or gloo")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--topk", type=float, metavar="RATIO", help="send this share of the gradients only, the largest; the rest later")
    parser.add_argument("--exact", action="store_true", help="round gradients, so that their sums have the same bits in any order")
    parser.add_argument("--checkpoint", type=Path, help="where to keep the state after each epoch, and to go on from")
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, test_x, test_y = digits()
    model = DistributedDataParallel(network())
    if options.exact:
        for parameter in model.parameters():
            parameter.register_hook(on_grid)
    hook = None
    if options.topk is not None:
        from fanin.torch import TopK, topk_hook

        # One epoch with everything: gradients change most at first.
        hook = TopK(options.topk, warmup_steps=len(train) // (32 * world))
        model.register_comm_hook(hook, topk_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    begin = 0
    if options.checkpoint is not None and options.checkpoint.exists():
        state = torch.load(options.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"]
        if hook is not None and len(state["unsent"]) == world:
            hook.load_state_dict(model, state["unsent"][rank])
    print(f"rank {rank} of {world}: process {os.getpid()}, from epoch {begin}", flush=True)

    sampler = DistributedSampler(train, seed=0)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    for epoch in range(begin, options.epochs):
        sampler.set_epoch(epoch)
        loss_sum = torch.zeros(2)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            loss_sum += torch.tensor([loss.item() * len(images), len(images)])
        dist.all_reduce(loss_sum)
        # What each rank has still to send is its own.
        unsent: list[dict[str, Any] | None] = []
        if hook is not None and options.checkpoint is not None:
            unsent = [None] * world
            dist.all_gather_object(unsent, hook.state_dict(model))
        if rank == 0:
            if options.checkpoint is not None:
                # Either the old or the new one is there, whole, whenever a process dies.
                new = options.checkpoint.with_suffix(".new")
                whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1, "unsent": unsent}
                torch.save(whole, new)
                new.replace(options.checkpoint)
            print(f"epoch {epoch + 1}: loss {loss_sum[0] / loss_sum[1]:.4f}", flush=True)

    with torch.no_grad():
        right = (model.module(test_x).argmax(1) == test_y).sum().item()
    prints: list[str | None] = [None] * world
    dist.all_gather_object(prints, fingerprint(model))
    if rank == 0:
        assert len(set(prints)) == 1, f"ranks have different parameters: {prints}"
        if options.backend == "fanin":
            from fanin.torch import report

            said = report()
            print(f"rank 0 by {said.path}", flush=True)
            if said.sparse is not None:
                print(f"sparse gradients by {said.sparse}", flush=True)
        print(f"accuracy {right / len(test_y):.4f}, the same parameters on {world} ranks: {prints[0]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
