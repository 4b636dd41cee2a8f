"""Sparse tensors, and the communication hook that sends the largest gradients only."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
import ranks
import torch

# DistributedDataParallel imports it for its first model, in every process again.
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fanin.torch import TopK, report, topk_hook

WORLD = 2


def drawn(rank: int, shape: tuple[int, ...], dense: int, count: int, dtype: torch.dtype) -> Tensor:
    """A sparse tensor of small whole numbers, in which some indices are there twice."""
    random = torch.Generator().manual_seed(rank)
    kept = len(shape) - dense
    indices = torch.stack([torch.randint(0, size, (count,), generator=random) for size in shape[:kept]])
    values = torch.randint(-3, 4, (count, *shape[kept:]), generator=random).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape)


CASES = [
    ((1_000,), 0, 50),
    ((40, 7, 5), 0, 30),
    ((500, 16), 1, 20),
    ((9, 4, 3, 2), 2, 40),
    ((6,), 0, 0),
    ((5, 0), 1, 2),
]


def sums(rank: int) -> None:
    """Every shape and type against dense tensors, natively."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("fanin.torch").addHandler(handler)
    for shape, dense, count in CASES:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8):
            given = [drawn(each, shape, dense, count, dtype) for each in range(WORLD)]
            tensor = given[rank].clone()
            work = dist.all_reduce(tensor, async_op=True)
            assert work is not None
            (result,) = work.get_future().wait()
            assert result is tensor or torch.equal(result.to_dense(), tensor.to_dense())
            expected = given[0].to_dense() + given[1].to_dense()
            assert tensor.is_coalesced()
            torch.testing.assert_close(tensor.to_dense(), expected, rtol=0, atol=0)
            # Every element that anybody has given, also where the sum is zero.
            union = torch.cat([each._indices() for each in given], dim=1).unique(dim=1)
            if tensor.numel() > 0:
                assert torch.equal(tensor._indices(), union), (shape, dtype)
    assert not lines


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_sums_of_sparse_tensors(transport: str) -> None:
    """Against dense ones."""
    ranks.run(WORLD, sums, environ={"FANIN_TRANSPORT": transport})


def reductions(rank: int) -> None:
    """Means, minima and maxima of what was given: what a rank has not given has no part in it."""
    for shape, dense, count in CASES:
        for dtype in (torch.float32, torch.float64, torch.int64):
            given = [drawn(each, shape, dense, count, dtype).coalesce() for each in range(WORLD)]
            kept = len(shape) - dense
            there = torch.stack(
                [torch.zeros(shape[:kept], dtype=torch.bool).index_put_(tuple(each._indices()), torch.tensor(True)) for each in given]
            )
            there = there.reshape(*there.shape, *[1] * dense).expand(WORLD, *shape)
            whole = torch.stack([each.to_dense() for each in given])
            far = torch.finfo(dtype).max if dtype.is_floating_point else 1_000
            expected = {
                dist.ReduceOp.MAX: torch.where(there, whole, -far).amax(0),
                dist.ReduceOp.MIN: torch.where(there, whole, far).amin(0),
            }
            if dtype.is_floating_point:
                expected[dist.ReduceOp.AVG] = whole.sum(0) / WORLD
            for op, wanted in expected.items():
                # Several entries of an index are their sum.
                tensor = drawn(rank, shape, dense, count, dtype)
                dist.all_reduce(tensor, op=op)
                got = torch.where(there.any(0), tensor.to_dense(), 0)
                torch.testing.assert_close(got, torch.where(there.any(0), wanted, 0).to(dtype), rtol=0, atol=0)
                assert torch.equal(tensor.to_dense(), got)
    for dtype, op, text in [
        (torch.int64, dist.ReduceOp.AVG, "there is no AVG of torch.int64"),
        (torch.complex64, dist.ReduceOp.MAX, "does not support RedOpType.MAX on complex"),
        (torch.float32, dist.ReduceOp.PRODUCT, "there is no PRODUCT of sparse tensors of torch.float32: expected SUM, AVG, MIN or MAX"),
    ]:
        with pytest.raises(ValueError, match=text):
            dist.all_reduce(drawn(rank, (9,), 0, 3, dtype), op=op)
    said = report()
    assert said.sparse and said.sparse_way in ("lists", "dense"), said
    assert said.calls["all_reduce_sparse"].calls == sum(len((0, 1, 2)) + len((0, 1, 2)) + len((0, 1)) for _ in CASES)


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_means_and_extremes_of_sparse_tensors(transport: str) -> None:
    """Against dense ones; and a group says how they were computed."""
    ranks.run(WORLD, reductions, environ={"FANIN_TRANSPORT": transport})


def disagree(rank: int) -> str:
    """Ranks whose tensors are of different shapes."""
    try:
        dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (5 + rank,)))
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("no error")


def test_sparse_tensors_of_different_shapes_are_an_error_at_all_ranks() -> None:
    """Which names both."""
    for text in ranks.run(WORLD, disagree):
        assert "sparse allreduce of 5 f32 (sum)" in text, text
        assert "sparse allreduce of 6 f32 (sum)" in text, text


@dataclass
class Bucket:
    """What the hook asks a bucket for."""

    gradient: Tensor
    of: list[Tensor]

    def buffer(self) -> Tensor:
        return self.gradient

    def parameters(self) -> list[Tensor]:
        return self.of


def test_sent_and_kept_are_the_gradient_and_what_was_kept() -> None:
    """Bit by bit, also where DistributedDataParallel puts parameters into other buckets."""
    random = torch.Generator().manual_seed(3)
    state = TopK(0.1)
    parameters = [torch.zeros(3, 5), torch.zeros(85), torch.zeros(20)]
    old = [torch.zeros(parameter.numel()) for parameter in parameters]
    for step in range(6):
        # Two buckets at first, and then one, in another order.
        buckets = [[0, 1], [2]] if step < 3 else [[2, 0, 1]]
        for numbers in buckets:
            mine = [parameters[number] for number in numbers]
            gradient = torch.randn(sum(parameter.numel() for parameter in mine), generator=random)
            whole = gradient + torch.cat([old[number] for number in numbers])
            indices, values = state.select(Bucket(gradient.clone(), mine))  # type: ignore[arg-type]
            assert indices.numel() == -(-gradient.numel() // 10)
            kept = torch.cat([_kept(state, parameter) for parameter in mine])
            sent = torch.zeros_like(whole)
            sent[indices] = values
            assert torch.equal(sent + kept, whole)
            # Each element is either sent or kept, and none that is kept is larger than one that is sent.
            assert not kept[indices].any()
            assert kept.abs().max() <= values.abs().min()
            for number in numbers:
                old[number] = _kept(state, parameters[number]).clone()
    assert all(each.any() for each in old)


def _kept(state: TopK, parameter: Tensor) -> Tensor:
    kept = state.kept(parameter)
    assert kept is not None
    return kept


def test_what_is_kept_survives_a_restart_and_does_not_go_into_another_model() -> None:
    """A state that was saved and loaded selects what the old one does."""
    random = torch.Generator().manual_seed(4)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    old = TopK(0.2, warmup_steps=3)
    old.steps = 7
    parameters = list(model.parameters())

    def gradient() -> Tensor:
        return torch.randn(sum(parameter.numel() for parameter in parameters), generator=random)

    for _ in range(3):
        old.select(Bucket(gradient(), parameters))  # type: ignore[arg-type]
    saved = old.state_dict(model)
    assert saved["kept"].keys() == dict(model.named_parameters()).keys()
    # A copy: what goes on does not change it.
    before = {name: kept.clone() for name, kept in saved["kept"].items()}
    copied = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    new = TopK(0.2, warmup_steps=3)
    new.load_state_dict(copied, saved)
    assert new.steps == 7
    for _ in range(3):
        step = gradient()
        mine = old.select(Bucket(step.clone(), parameters))  # type: ignore[arg-type]
        theirs = new.select(Bucket(step.clone(), list(copied.parameters())))  # type: ignore[arg-type]
        assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
    assert all(torch.equal(kept, before[name]) for name, kept in saved["kept"].items())
    with pytest.raises(ValueError, match=r"kept\['0.weight'\] has 30 elements: expected 42, as the parameter has"):
        new.load_state_dict(nn.Sequential(nn.Linear(6, 7)), saved)
    with pytest.raises(ValueError, match=r"kept\['1.weight'\]: the model has no such parameter; it has 0.weight, 0.bias"):
        new.load_state_dict(nn.Sequential(nn.Linear(6, 5)), saved)
    assert new.steps == 7 and new.kept(next(iter(copied.parameters()))) is not None
    # Before the first step there is nothing.
    assert TopK(0.5).state_dict(model) == {"steps": 0, "kept": {}}


def test_arguments_out_of_range_are_named() -> None:
    """With what was expected."""
    for ratio in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="ratio = .*: expected above 0, up to 1"):
            TopK(ratio)
    with pytest.raises(ValueError, match="warmup_steps = -1: expected 0 or more"):
        TopK(0.5, warmup_steps=-1)


def data(rank: int, count: int = 512) -> tuple[Tensor, Tensor]:
    """What a fixed network says about a rank's points; features are of very different sizes, so that some gradients are always small."""
    random = torch.Generator().manual_seed(17)
    teacher = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 1))
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random))
        points = torch.randn(count * WORLD, 20, generator=random)[rank::WORLD] * torch.logspace(0, -1, 20)
        return points, teacher(points)


def train(rank: int, state: TopK | None, steps: int) -> tuple[float, list[Tensor]]:
    """Trains a small network; the loss over all ranks, and the parameters."""
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1)), bucket_cap_mb=0.001)
    if state is not None:
        model.register_comm_hook(state, topk_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    points, wanted = data(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(points), wanted).backward()
        optimizer.step()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(points), wanted)
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    return loss.item(), [parameter.detach().clone() for parameter in model.parameters()]


def everything(rank: int) -> None:
    """All gradients are sent, by the hook and without it; or none by the hook, since it is still warming up."""
    _, plain = train(rank, None, 10)
    for state in (TopK(1.0), TopK(1.0, error_feedback=False), TopK(0.001, warmup_steps=10)):
        _, hooked = train(rank, state, 10)
        assert state.steps == 10
        for mine, expected in zip(hooked, plain, strict=True):
            assert torch.equal(mine, expected)


def test_all_gradients_give_the_bits_of_plain_training() -> None:
    """With two ranks the order of summands does not matter."""
    ranks.run(WORLD, everything)


def losses(rank: int) -> dict[str, float]:
    """The loss after as many steps, by what was sent."""
    ways = {
        "all": None,
        "feedback": TopK(0.01, warmup_steps=10),
        "forgetting": TopK(0.01, warmup_steps=10, error_feedback=False),
    }
    return {name: train(rank, state, 600)[0] for name, state in ways.items()}


def test_one_percent_of_the_gradients_trains_as_well_with_error_feedback_and_worse_without() -> None:
    """Everything is seeded: the same losses every time on one machine."""
    first, second = ranks.run(WORLD, losses)
    assert first == second
    assert first["feedback"] <= 1.5 * first["all"], first
    assert first["forgetting"] >= 1.5 * first["feedback"], first
