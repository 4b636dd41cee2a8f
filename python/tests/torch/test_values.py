"""Values: every type and operator at many lengths, against values that are computed without Fanin; all ranks have the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest
import ranks
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

WORLD = 3
LENGTHS = [0, 1, 2, 3, 7, 64, 255, 256, 257, 1_000, 4_099, 65_537]
LONG = 1_000_003

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]

FOR_ALL = {"sum": ReduceOp.SUM, "prod": ReduceOp.PRODUCT, "min": ReduceOp.MIN, "max": ReduceOp.MAX}
FOR_FLOATS = FOR_ALL | {"avg": ReduceOp.AVG}
FOR_INTEGERS = FOR_ALL | {"and": ReduceOp.BAND, "or": ReduceOp.BOR, "xor": ReduceOp.BXOR}
FOR_BOOL = {"any": ReduceOp.SUM, "all": ReduceOp.PRODUCT} | {
    "all ": ReduceOp.MIN,
    "any ": ReduceOp.MAX,
    "and": ReduceOp.BAND,
    "or": ReduceOp.BOR,
    "xor": ReduceOp.BXOR,
}
FOR_COMPLEX = {"sum": ReduceOp.SUM, "avg": ReduceOp.AVG}

#: A unit in the last place of 1, by type; sums are off by at most that much a summand, relative to the sum of magnitudes.
UNIT = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7} | {
    torch.complex64: 2.0**-23,
    torch.complex128: 2.0**-52,
}


def cases() -> Iterator[tuple[torch.dtype, str, ReduceOp]]:
    """All types with all of their operators."""
    for dtypes, operators in [(FLOATS, FOR_FLOATS), (INTEGERS, FOR_INTEGERS), ([torch.bool], FOR_BOOL), (COMPLEX, FOR_COMPLEX)]:
        for dtype in dtypes:
            for name, op in operators.items():
                yield dtype, name.strip(), op


def vector(dtype: torch.dtype, length: int, rank: int, salt: int) -> Tensor:
    """Rank ``rank``'s vector: the same wherever it is made."""
    random = np.random.default_rng([salt, rank, length])
    if dtype == torch.bool:
        return torch.from_numpy(random.random(length) < 0.5)
    if dtype in INTEGERS:
        low, high = (0, 256) if dtype == torch.uint8 else (-120, 120)
        return torch.from_numpy(random.integers(low, high, length)).to(dtype)
    if dtype in COMPLEX:
        return torch.from_numpy(random.uniform(-2, 2, length) + 1j * random.uniform(-2, 2, length)).to(dtype)
    return torch.from_numpy(random.uniform(-2, 2, length)).to(dtype)


def wide(tensor: Tensor) -> np.ndarray:
    """A tensor's values in numpy's widest type."""
    if tensor.dtype in COMPLEX:
        return tensor.to(torch.complex128).numpy()
    if tensor.dtype in FLOATS:
        return tensor.to(torch.float64).numpy()
    return tensor.numpy() if tensor.dtype == torch.bool else tensor.to(torch.int64).numpy()


def expected(name: str, vectors: list[np.ndarray], dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray | float]:
    """The reduction by numpy, and how far a correct one may be from it."""
    stack = np.stack(vectors)
    exact = {"min": np.min, "max": np.max, "any": np.any, "all": np.all}
    if name in exact:
        return exact[name](stack, axis=0), 0.0
    if name in ("and", "or", "xor"):
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name].reduce(stack, axis=0), 0.0
    total = np.prod(stack, axis=0) if name == "prod" else np.sum(stack, axis=0)
    if dtype in INTEGERS:
        # They wrap.
        return torch.from_numpy(total).to(dtype).to(torch.int64).numpy(), 0.0
    magnitude = np.prod(np.abs(stack), axis=0) if name == "prod" else np.sum(np.abs(stack), axis=0)
    bound = len(vectors) * UNIT[dtype] * magnitude
    # Products of small numbers may be below the smallest normal one.
    bound = bound + (float(torch.finfo(dtype).smallest_normal) if dtype in FLOATS else 0.0)
    return (total / len(vectors), bound / len(vectors)) if name == "avg" else (total, bound)


def check(got: Tensor, name: str, vectors: list[Tensor], what: str) -> None:
    """Fails where ``got`` is not the reduction of ``vectors``."""
    want, bound = expected(name, [wide(each) for each in vectors], got.dtype)
    wrong = np.flatnonzero(np.abs(wide(got) - want) > bound) if got.dtype != torch.bool else np.flatnonzero(wide(got) != want)
    assert wrong.size == 0, f"{what}: {wrong.size} wrong, first at {wrong[0]}: {wide(got)[wrong[0]]}, expected {want[wrong[0]]}"


class Digest:
    """The bits of all results of a rank."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, tensor: Tensor) -> None:
        """Takes a result."""
        self._hash.update(tensor.numpy().tobytes() if tensor.dtype != torch.bfloat16 else tensor.view(torch.int16).numpy().tobytes())

    def hex(self) -> str:
        """Of all so far."""
        return self._hash.hexdigest()


def sweep_allreduce(rank: int) -> tuple[int, str]:
    """Every type, operator and length."""
    digest, count = Digest(), 0
    for salt, (dtype, name, op) in enumerate(cases()):
        long = [LONG] if name in ("sum", "any") else []
        for length in LENGTHS + long:
            vectors = [vector(dtype, length, each, salt) for each in range(WORLD)]
            mine = vectors[rank].clone()
            dist.all_reduce(mine, op=op)
            check(mine, name, vectors, f"all_reduce {name} of {length} {dtype}")
            digest.add(mine)
            count += 1
    return count, digest.hex()


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_all_reduce_of_every_type_operator_and_length(transport: str) -> None:
    """Each value is right, and all ranks have the same bits, in shared memory and by UDP."""
    results = ranks.run(WORLD, sweep_allreduce, environ={"FANIN_TRANSPORT": transport})
    assert results[0][0] == len(list(cases())) * len(LENGTHS) + len([name for _, name, _ in cases() if name in ("sum", "any")])
    assert len({digest for _, digest in results}) == 1


def sweep_others(rank: int) -> str:
    """The other collectives, by every type and a few lengths."""
    digest = Digest()
    for salt, (dtype, name, op) in enumerate(cases()):
        for length in (0, 1, 257, 4_099):
            vectors = [vector(dtype, length, each, salt) for each in range(WORLD)]
            what = f"{name} of {length} {dtype}"
            mine = vectors[rank].clone()
            dist.reduce(mine, dst=1, op=op)
            if rank == 1:
                check(mine, name, vectors, f"reduce {what}")
            else:
                assert torch.equal(mine, vectors[rank]), f"reduce {what}: a rank that is not the root has another vector"
            wholes = [vector(dtype, length * WORLD, each, salt) for each in range(WORLD)]
            part = torch.empty(length, dtype=dtype)
            dist.reduce_scatter_tensor(part, wholes[rank].clone(), op=op)
            shares = [whole[rank * length : (rank + 1) * length] for whole in wholes]
            check(part, name, shares, f"reduce_scatter_tensor {what}")
            listed = torch.empty(length, dtype=dtype)
            dist.reduce_scatter(listed, list(wholes[rank].clone().chunk(WORLD)) if length else [listed.clone()] * WORLD, op=op)
            check(listed, name, shares, f"reduce_scatter {what}")
            gathered = torch.empty(length * WORLD, dtype=dtype)
            dist.all_gather_into_tensor(gathered, part)
            digest.add(gathered)
            each_of = [torch.empty(length, dtype=dtype) for _ in range(WORLD)]
            dist.all_gather(each_of, part)
            assert torch.equal(torch.cat(each_of), gathered), f"all_gather {what} differs from the tensor form"
            check(gathered, name, wholes, f"all_gather {what}")
            for root in range(WORLD):
                sent = vectors[rank].clone()
                dist.broadcast(sent, src=root)
                assert torch.equal(sent, vectors[root]), f"broadcast {what}"
    return digest.hex()


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_the_other_collectives(transport: str) -> None:
    """Reduce, reduce-scatter, all-gather and broadcast."""
    assert len(set(ranks.run(WORLD, sweep_others, environ={"FANIN_TRANSPORT": transport}))) == 1


def uneven(rank: int) -> None:
    """Lists of tensors of different lengths."""
    lengths = [3, 0, 5]
    given = [vector(torch.float32, length, rank, 1) for length in lengths]
    output = torch.empty(lengths[rank])
    dist.reduce_scatter(output, given)
    check(output, "sum", [vector(torch.float32, lengths[rank], each, 1) for each in range(WORLD)], "uneven reduce_scatter")
    outputs = [torch.empty(length) for length in lengths]
    dist.all_gather(outputs, output)
    for root, length in enumerate(lengths):
        check(outputs[root], "sum", [vector(torch.float32, length, each, 1) for each in range(WORLD)], "uneven all_gather")


def test_shares_of_different_lengths() -> None:
    """All-gather and reduce-scatter of lists."""
    ranks.run(WORLD, uneven)


def layouts(rank: int) -> None:
    """Tensors that are not one stretch of memory at some ranks only; shares inside of the whole; results over inputs."""
    base = torch.arange(24.0).view(4, 6)
    mine = base.clone().t() if rank == 1 else base.t().contiguous()
    assert mine.is_contiguous() == (rank != 1)
    dist.all_reduce(mine)
    assert torch.equal(mine, base.t() * WORLD)
    strided = torch.zeros(10)[::2]
    dist.broadcast(strided.fill_(rank), src=2)
    assert strided.tolist() == [2.0] * 5
    whole = torch.full((WORLD * 4,), -1.0)
    own = whole[rank * 4 : rank * 4 + 4].fill_(rank)
    dist.all_gather_into_tensor(whole, own)
    assert torch.equal(whole, torch.arange(float(WORLD)).repeat_interleave(4))
    dist.reduce_scatter_tensor(whole[rank * 4 : rank * 4 + 4], whole)
    assert torch.equal(own, torch.full((4,), float(rank * WORLD)))
    shifted = torch.arange(float(WORLD * 4 + 1))
    dist.all_gather_into_tensor(shifted[1:], shifted[:4].clone())
    overlapping = torch.arange(float(WORLD * 4))
    dist.reduce_scatter_tensor(overlapping[1:5], overlapping)
    assert overlapping[1:5].tolist() == [float(WORLD * (rank * 4 + index)) for index in range(4)]


def test_layouts_of_tensors() -> None:
    """What a rank's tensors look like in memory is its own business."""
    ranks.run(WORLD, layouts)


def scaled(rank: int) -> None:
    """``PREMUL_SUM``."""
    op = dist._make_nccl_premul_sum(0.5)
    for collective in (dist.all_reduce, lambda tensor, op: dist.reduce(tensor, dst=0, op=op)):
        mine = torch.full((5,), rank + 1.0)
        collective(mine, op=op)
        if collective is dist.all_reduce or rank == 0:
            assert mine.tolist() == [3.0] * 5
        else:
            assert mine.tolist() == [rank + 1.0] * 5
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, torch.arange(6.0), op=op)
    assert part.tolist() == [1.5 * (2 * rank), 1.5 * (2 * rank + 1)]


def test_sums_of_scaled_vectors() -> None:
    """A factor before the sum."""
    ranks.run(WORLD, scaled)


def refused(rank: int) -> None:
    """Arguments that do not fit are refused at once, and the group is as before."""
    with pytest.raises(ValueError, match="no AVG of torch.int32: expected one of SUM"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), op=ReduceOp.AVG)
    with pytest.raises(ValueError, match="expected 6 of torch.float32"):
        dist.all_gather_into_tensor(torch.empty(5), torch.ones(2))
    with pytest.raises(ValueError, match="no BAND of torch.float32"):
        dist.all_reduce(torch.ones(3), op=ReduceOp.BAND)
    mine = torch.full((2,), float(rank))
    dist.all_reduce(mine)
    assert mine.tolist() == [3.0, 3.0]


def test_wrong_arguments() -> None:
    """Integers have no mean, floats no bits, and shares have to fit."""
    ranks.run(WORLD, refused)
