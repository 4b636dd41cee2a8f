"""Hooks that send a byte for each gradient: bounds of their errors, numbers that are none, and training."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import ranks
import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fanin.torch import Options, all_reduce, report
from fanin.torch.hooks import e4m3_sum, fp8_e4m3_hook, int8_hook

WORLD = 3
HOOKS = {"int8": int8_hook, "fp8": fp8_e4m3_hook}


@dataclass
class Bucket:
    """What a hook asks a bucket for."""

    gradient: Tensor

    def buffer(self) -> Tensor:
        """The gradients."""
        return self.gradient


def group_with_operator() -> dist.ProcessGroup:
    """One that has the sum of 8-bit floats."""
    group = dist.new_group(backend="fanin", pg_options=Options(operators=(e4m3_sum(),)))
    assert isinstance(group, dist.ProcessGroup)
    return group


def mean(hook: Callable[..., Any], group: dist.ProcessGroup, gradient: Tensor) -> Tensor:
    """What a hook makes of a bucket."""
    got = hook(group, Bucket(gradient.clone())).wait()
    assert isinstance(got, Tensor)
    return got


def gradients(rank: int, dtype: torch.dtype) -> Tensor:
    """Of many magnitudes, with zeros."""
    random = torch.Generator().manual_seed(40 + rank)
    given = torch.randn(5_000, generator=random, dtype=torch.float64) * 10.0 ** torch.randint(-6, 2, (5_000,), generator=random)
    given[::17] = 0.0
    return given.to(dtype)


def bound(name: str, given: list[Tensor], dtype: torch.dtype) -> Tensor:
    """How far the mean may be off, element by element."""
    world = len(given)
    magnitudes = torch.stack(given).abs()
    largest = magnitudes.amax()
    g = (17 / 16) ** world
    if name == "int8":
        off = torch.full_like(magnitudes[0], float(largest) / (2 * (127 // world)))
    else:
        off = magnitudes.mean(0) * (g - 1) + largest * world * g * g / (448 * 1024)
    # The result's own type, and the factor's rounding.
    return off * (1 + 2.0**-18) + (magnitudes.mean(0) + off) * max(torch.finfo(dtype).eps, 2.0**-22)


def errors(rank: int, name: str) -> float:
    """The largest error, as a share of its bound."""
    group = group_with_operator()
    worst = 0.0
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        given = [gradients(other, dtype).double() for other in range(WORLD)]
        got = mean(HOOKS[name], group, gradients(rank, dtype))
        assert got.dtype == dtype
        off = (got.double() - torch.stack(given).mean(0)).abs()
        worst = max(worst, float((off / bound(name, given, dtype)).max()))
        everywhere = [torch.empty_like(got) for _ in range(WORLD)]
        dist.all_gather(everywhere, got, group=group)
        assert all(torch.equal(got, other) for other in everywhere)
    calls = report(group).calls
    sent = calls["all_reduce_custom"].bytes if name == "fp8" else calls["all_reduce"].bytes - 4 * 8
    # A byte an element, and for each bucket a scale of 8.
    assert sent == 4 * 5_000, calls
    return worst


@pytest.mark.parametrize("transport", ["shm", "udp"])
@pytest.mark.parametrize("name", HOOKS)
def test_errors_are_within_their_bounds(name: str, transport: str) -> None:
    """Against means in 64 bits; and the bound is not far away, so that the test would see a worse one."""
    shares = ranks.run(WORLD, errors, name, environ={"FANIN_TRANSPORT": transport})
    assert all(0.3 < share <= 1.0 for share in shares), shares


def errors_where_ranks_share_a_host(rank: int, store: str) -> float:
    """Ranks 0 and 1 combine in the memory of their host first, and rank 2 is at another one."""
    os.environ["FANIN_FABRIC_HOST"] = f"host{rank // 2}"
    dist.init_process_group("fanin", init_method=f"file://{store}", rank=rank, world_size=WORLD, timeout=timedelta(seconds=60))
    worst = errors(rank, "fp8")
    assert report().transport == "shm+fabric"
    return worst


def test_errors_are_within_their_bounds_where_ranks_share_a_host_of_a_fabric(fabric: str, tmp_path: object) -> None:
    """By the operator of the hook, in both steps."""
    shares = ranks.run(WORLD, errors_where_ranks_share_a_host, f"{tmp_path}/store", backend="", environ={"FANIN_FABRIC": fabric})
    assert all(0.3 < share <= 1.0 for share in shares), shares


def oddities(rank: int, name: str) -> None:
    """NaNs, infinities, nothing but zeros, nothing, and numbers without a scale."""
    group, hook = group_with_operator(), HOOKS[name]
    for odd in (float("nan"), float("inf"), -float("inf")):
        given = torch.ones(300)
        if rank == 1:
            given[7] = odd
        wanted = torch.ones(300)
        wanted[7] = odd
        torch.testing.assert_close(mean(hook, group, given), wanted, equal_nan=True, rtol=1e-6, atol=0)
    assert torch.equal(mean(hook, group, torch.zeros(9)), torch.zeros(9))
    assert mean(hook, group, torch.zeros(0)).numel() == 0
    tiny = torch.full((5,), 1e-42)
    torch.testing.assert_close(mean(hook, group, tiny), tiny, rtol=0.01, atol=0)
    if name == "fp8":
        with pytest.raises(ValueError, match=r"the group has no operator 'e4m3_sum': expected it among the group's"):
            mean(hook, dist.group.WORLD, torch.ones(3))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HOOKS)
def test_what_is_no_number_is_seen(name: str) -> None:
    """At its place, as without a hook."""
    ranks.run(WORLD, oddities, name)


def every_pair(rank: int) -> None:
    """All sums of two 8-bit floats, in both orders, against PyTorch's."""
    group = group_with_operator()
    every = torch.arange(256, dtype=torch.uint8)
    first, second = every.repeat_interleave(256), every.repeat(256)
    for one, other in ((first, second), (second, first)):
        mine = (one if rank == 0 else other).clone()
        all_reduce(mine, e4m3_sum(), group).wait()
        numbers = [each.view(torch.float8_e4m3fn).float() for each in (one, other)]
        wanted = (numbers[0] + numbers[1]).to(torch.float8_e4m3fn).float()
        torch.testing.assert_close(mine.view(torch.float8_e4m3fn).float(), wanted, equal_nan=True, rtol=0, atol=0)
        same = mine.clone()
        dist.broadcast(same, 0, group=group)
        assert torch.equal(same, mine)
        if one is first:
            before = mine
        else:
            assert torch.equal(before, mine), "the order matters"


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_sums_of_8_bit_floats(transport: str) -> None:
    """The module does what it says: commutative to the bit, and PyTorch's rounding."""
    ranks.run(2, every_pair, environ={"FANIN_TRANSPORT": transport})


def fit(rank: int, name: str, store: str) -> tuple[float, float]:
    """The loss before and after some steps of training, with a hook or without."""
    options = Options(operators=(e4m3_sum(),), timeout=50.0)
    dist.init_process_group(
        "fanin", init_method=f"file://{store}-{name}", rank=rank, world_size=2, timeout=timedelta(seconds=60), pg_options=options
    )
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 1)), bucket_cap_mb=0.001)
    if name in HOOKS:
        model.register_comm_hook(None, HOOKS[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    random = torch.Generator().manual_seed(rank)
    inputs = torch.randn(64, 10, generator=random)
    wanted = inputs[:, :1] * 0.8 - inputs[:, 1:2] * 0.5
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        loss = (model(inputs) - wanted).square().mean()
        losses.append(float(loss))
        loss.backward()
        optimizer.step()
    return losses[0], losses[-1]


def test_training_reaches_the_same_loss(tmp_path: object) -> None:
    """Within 5 % of the first loss of the loss that training without a hook comes to, which is a small share of the first."""
    plain = ranks.run(2, fit, "none", f"{tmp_path}/store", backend="")
    for name in HOOKS:
        for (first, last), (first_plain, last_plain) in zip(ranks.run(2, fit, name, f"{tmp_path}/store", backend=""), plain, strict=True):
            assert first == first_plain
            assert last_plain < 0.1 * first_plain
            assert abs(last - last_plain) < 0.05 * first_plain, name
