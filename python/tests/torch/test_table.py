"""Every operator of PyTorch with every type of elements in every collective that reduces: the result is right, or all ranks are told what
there is instead, and the group is as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import ranks
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

WORLD = 2
LENGTH = 6

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex128, torch.complex64]
OTHERS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
TYPES = [*FLOATS, *INTEGERS, *UNSIGNED, *COMPLEX, torch.bool, *OTHERS]

SCALE = 0.5
OPERATORS = {
    "SUM": ReduceOp.SUM,
    "AVG": ReduceOp.AVG,
    "PRODUCT": ReduceOp.PRODUCT,
    "MIN": ReduceOp.MIN,
    "MAX": ReduceOp.MAX,
    "BAND": ReduceOp.BAND,
    "BOR": ReduceOp.BOR,
    "BXOR": ReduceOp.BXOR,
    "PREMUL_SUM": dist._make_nccl_premul_sum(SCALE),
}

BITS = {"BAND", "BOR", "BXOR"}
THERE = (
    {dtype: {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM"} for dtype in FLOATS}
    | {dtype: {"SUM", "PRODUCT", "MIN", "MAX"} | BITS for dtype in [*INTEGERS, torch.bool]}
    | {dtype: {"SUM", "PRODUCT"} | BITS for dtype in UNSIGNED}
    | {dtype: {"SUM", "AVG", "PREMUL_SUM"} for dtype in COMPLEX}
    | {dtype: set() for dtype in OTHERS}
)


def given(dtype: torch.dtype, rank: int, length: int = LENGTH) -> Tensor:
    """What a rank has: small whole numbers, so that sums are exact in every type."""
    numbers = torch.arange(length, dtype=torch.int64) % 5 + 3 * rank + 1
    if dtype == torch.bool:
        return numbers % (rank + 2) == 0
    if dtype.is_complex:
        return torch.complex(numbers.double(), -2.0 * numbers.double()).to(dtype)
    if dtype.is_floating_point or (dtype in INTEGERS and dtype != torch.uint8):
        numbers = numbers * (1 - 2 * rank)
    return numbers.to(dtype)


def expected(name: str, dtype: torch.dtype, length: int = LENGTH) -> Tensor:
    """The reduction, by PyTorch's arithmetic in a type that is wide enough."""
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    all_of = torch.stack([given(dtype, rank, length).to(wide) for rank in range(WORLD)])
    if dtype == torch.bool:
        all_of = all_of.bool()
        how: dict[str, Callable[[], Tensor]] = {"SUM": lambda: all_of.any(0), "PRODUCT": lambda: all_of.all(0)}
        how |= {"MAX": how["SUM"], "BOR": how["SUM"], "MIN": how["PRODUCT"], "BAND": how["PRODUCT"], "BXOR": lambda: all_of[0] ^ all_of[1]}
        return how[name]()
    how = {
        "SUM": lambda: all_of.sum(0),
        "AVG": lambda: all_of.sum(0) / WORLD,
        "PRODUCT": lambda: all_of.prod(0),
        "MIN": lambda: all_of.amin(0),
        "MAX": lambda: all_of.amax(0),
        "BAND": lambda: all_of[0] & all_of[1],
        "BOR": lambda: all_of[0] | all_of[1],
        "BXOR": lambda: all_of[0] ^ all_of[1],
        "PREMUL_SUM": lambda: (all_of * SCALE).sum(0),
    }
    return how[name]().to(dtype)


def all_reduce(rank: int, dtype: torch.dtype, op: ReduceOp) -> tuple[Tensor, slice]:
    mine = given(dtype, rank)
    dist.all_reduce(mine, op=op)
    return mine, slice(None)


def all_reduce_in_background(rank: int, dtype: torch.dtype, op: ReduceOp) -> tuple[Tensor, slice]:
    mine = given(dtype, rank)
    work = dist.all_reduce(mine, op=op, async_op=True)
    assert work is not None
    work.wait()
    return mine, slice(None)


def all_reduce_coalesced(rank: int, dtype: torch.dtype, op: ReduceOp) -> tuple[Tensor, slice]:
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = op
    both = [given(dtype, rank), given(dtype, rank)]
    dist.group.WORLD.allreduce_coalesced(both, options).wait()  # type: ignore[union-attr]
    assert torch.equal(plain(both[0]), plain(both[1]))
    return both[1], slice(None)


def reduce(rank: int, dtype: torch.dtype, op: ReduceOp) -> tuple[Tensor, slice]:
    mine = given(dtype, rank)
    dist.reduce(mine, dst=1, op=op)
    if rank == 0:
        assert torch.equal(plain(mine), plain(given(dtype, 0))), "a rank that gets no result has another tensor"
        return mine, slice(0, 0)
    return mine, slice(None)


def reduce_scatter_tensor(rank: int, dtype: torch.dtype, op: ReduceOp) -> tuple[Tensor, slice]:
    share = LENGTH // WORLD
    part = torch.empty(share, dtype=dtype)
    dist.reduce_scatter_tensor(part, given(dtype, rank), op=op)
    return part, slice(rank * share, (rank + 1) * share)


def reduce_scatter(rank: int, dtype: torch.dtype, op: ReduceOp) -> tuple[Tensor, slice]:
    share = LENGTH // WORLD
    part = torch.empty(share, dtype=dtype)
    dist.reduce_scatter(part, list(given(dtype, rank).split(share)), op=op)
    return part, slice(rank * share, (rank + 1) * share)


def reduce_scatter_uneven(rank: int, dtype: torch.dtype, op: ReduceOp) -> tuple[Tensor, slice]:
    parts = list(given(dtype, rank).split([2, 4]))
    part = torch.empty(parts[rank].numel(), dtype=dtype)
    dist.reduce_scatter(part, parts, op=op)
    return part, slice(0, 2) if rank == 0 else slice(2, 6)


COLLECTIVES = [
    all_reduce,
    all_reduce_in_background,
    all_reduce_coalesced,
    reduce,
    reduce_scatter_tensor,
    reduce_scatter,
    reduce_scatter_uneven,
]


def plain(tensor: Tensor) -> Tensor:
    """Its bytes: PyTorch compares not all types."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def cases() -> Iterator[tuple[Callable[..., tuple[Tensor, slice]], torch.dtype, str]]:
    """All of them."""
    for collective in COLLECTIVES:
        for dtype in TYPES:
            for name in OPERATORS:
                yield collective, dtype, name


def sweep(rank: int) -> tuple[int, int]:
    """How many are right, and how many are refused."""
    right, refused = 0, 0
    for collective, dtype, name in cases():
        what = f"{collective.__name__} {name} of {dtype}"
        if name in THERE[dtype]:
            got, where = collective(rank, dtype, OPERATORS[name])
            want = expected(name, dtype)[where]
            got = got if want.numel() else got[:0]
            # Zeros of both signs are equal.
            same = torch.equal(got, want) if dtype not in UNSIGNED else torch.equal(plain(got), plain(want))
            assert same, f"{what}: {got} in place of {want}"
            right += 1
            continue
        before = plain(given(dtype, rank))
        with pytest.raises((ValueError, RuntimeError)) as raised:
            collective(rank, dtype, OPERATORS[name])
        text = str(raised.value)
        assert str(dtype) in text or "complex" in text, f"{what}: {text}"
        assert torch.equal(plain(given(dtype, rank)), before)
        refused += 1
    dist.barrier()
    return right, refused


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_every_operator_type_and_collective(transport: str) -> None:
    """Right, or refused with the type's name; never something else."""
    there = sum(len(names) for names in THERE.values()) * len(COLLECTIVES)
    all_of = len(COLLECTIVES) * len(TYPES) * len(OPERATORS)
    assert ranks.run(WORLD, sweep, environ={"FANIN_TRANSPORT": transport}) == [(there, all_of - there)] * WORLD


def factors(rank: int) -> None:
    """Factors of ``PREMUL_SUM``: numbers and tensors with one."""
    for factor in (0.25, torch.tensor(0.25), torch.tensor([0.25], dtype=torch.float64)):
        for dtype in (torch.float32, torch.bfloat16):
            mine = torch.full((3,), 4.0 * (rank + 1), dtype=dtype)
            dist.reduce(mine, dst=0, op=dist._make_nccl_premul_sum(factor))
            assert mine.tolist() == [3.0 if rank == 0 else 8.0] * 3
    # The input of a rank that gets no result stays as it is.
    strided = torch.full((6,), 2.0)[::2]
    dist.all_reduce(strided, op=dist._make_nccl_premul_sum(0.5))
    assert strided.tolist() == [2.0] * 3


def test_factors_of_scaled_sums() -> None:
    """A number, or a tensor with one."""
    ranks.run(WORLD, factors)


def several(rank: int) -> None:
    """A rank has one tensor in a call."""
    group = dist.group.WORLD
    assert group is not None
    with pytest.raises(ValueError, match="2 tensors of one rank, expected one"):
        group.allreduce([torch.ones(2), torch.ones(2)])
    options = dist.BroadcastOptions()
    options.rootTensor = 1
    with pytest.raises(ValueError, match="rootTensor = 1: expected 0"):
        group.broadcast([torch.ones(2)], options)
    with pytest.raises(ValueError, match="there is no PRODUCT of sparse tensors"):
        dist.all_reduce(torch.eye(2).to_sparse(), op=ReduceOp.PRODUCT)
    dist.barrier()


def test_what_a_backend_of_one_device_does_not_take() -> None:
    """Is refused by name."""
    ranks.run(WORLD, several)
