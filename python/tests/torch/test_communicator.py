"""The communicator itself, without torch.distributed, takes tensors where they lie."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import fanin
from fanin._arrays import view_input


@pytest.fixture
def comm() -> Iterator[fanin.Communicator]:
    with fanin.init(rank=0, world=1, job="tensors") as communicator:
        yield communicator


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_tensors_are_read_and_written_where_they_lie(comm: fanin.Communicator, dtype: torch.dtype) -> None:
    tensor = torch.tensor([1, 0, 1, 1]).to(dtype)
    assert view_input(tensor).address == tensor.data_ptr()
    result = comm.allreduce(tensor, "max")
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, tensor)
    assert result.dtype == dtype
    out = torch.zeros_like(tensor)
    assert comm.allreduce(tensor, "max", out=out) is out
    assert torch.equal(out, tensor)
    assert comm.broadcast(tensor) is tensor
    assert torch.equal(comm.all_gather(tensor), tensor)


def test_tensors_that_need_gradients_or_a_copy(comm: fanin.Communicator) -> None:
    table = torch.arange(6.0, requires_grad=True).reshape(2, 3)
    assert torch.equal(comm.allreduce(table.T), table.T.detach())
    parameter = torch.nn.Parameter(torch.ones(3))
    assert comm.allreduce(parameter, out=parameter) is parameter
    with pytest.raises(fanin.ArgumentError, match="not contiguous"):
        comm.allreduce(table, out=torch.zeros(3, 2).T)
    with pytest.raises(fanin.ArgumentError, match="expected a dense one"):
        comm.allreduce(torch.eye(3).to_sparse())
    with pytest.raises(fanin.ArgumentError, match="the tensor is on meta"):
        comm.allreduce(torch.zeros(3, device="meta"))


def test_tensors_that_are_negatives_or_conjugates_of_what_lies_there(comm: fanin.Communicator) -> None:
    negated = torch._neg_view(torch.arange(3.0))
    conjugated = torch.conj(torch.tensor([1.0 + 2.0j]))
    for tensor in (negated, conjugated, conjugated.imag, torch._efficientzerotensor(3)):
        want = tensor.resolve_conj().resolve_neg() + 0
        assert torch.equal(comm.allreduce(tensor), want)
        assert torch.equal(comm.reduce_scatter(tensor), want)
        assert torch.equal(comm.all_gather(tensor), want)
    with pytest.raises(fanin.ArgumentError, match="negated or conjugated elements"):
        comm.allreduce(torch.arange(3.0), out=negated)
    union, sums = comm.allreduce_sparse(torch.tensor([2, 0]), torch._neg_view(torch.tensor([1.0, 2.0])), 4)
    assert union.tolist() == [0, 2] and sums.tolist() == [-2.0, -1.0]


def of_rank(comm: fanin.Communicator) -> list[float]:
    summed = comm.allreduce(torch.full((3,), float(comm.rank + 1), dtype=torch.bfloat16))
    part = comm.reduce_scatter(torch.arange(4.0))
    return [*summed.tolist(), *part.tolist()]


def test_tensors_between_processes() -> None:
    assert fanin.run(of_rank, workers=2) == [[3.0] * 3 + [0.0, 2.0], [3.0] * 3 + [4.0, 6.0]]
