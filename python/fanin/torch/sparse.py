"""Sparse tensors (COO) as lists of indices and values, which is what the communicator takes.

A tensor with sparse dimensions (s1, ..) and dense ones (d1, ..) is the vector of its elements, row by row; a row of a sparse gradient is as
many of them as the dense dimensions have.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from fanin._native import SparseResult
from fanin.errors import ArgumentError
from fanin.torch.elements import Elements, reduced
from fanin.torch.memory import After

#: Address and bytes of the indices, then of the values.
Addresses = tuple[int, int, int, int]


_OPERATORS = {ReduceOp.SUM: "sum", ReduceOp.AVG: "sum", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}


class SparseReduction(NamedTuple):
    """How sparse tensors are reduced."""

    #: As the communicator sees it.
    elements: Elements
    #: Whether sums are divided by the number of ranks.
    is_mean: bool


def sparse_reduction(dtype: torch.dtype, op: ReduceOp.RedOpType, *, propagates: bool = False) -> SparseReduction:
    """How sparse tensors of a type are reduced.

    Raises:
        ArgumentError: There is no such reduction; says which there are.
    """
    elements = reduced(dtype, op)
    if op not in _OPERATORS or dtype == torch.bool:
        raise ArgumentError(f"there is no {op.name} of sparse tensors of {dtype}: expected SUM, AVG, MIN or MAX of numbers")
    if propagates and op in (ReduceOp.MIN, ReduceOp.MAX) and dtype.is_floating_point:
        raise ArgumentError(
            f"there is no {op.name} of sparse tensors in a group with nan = 'propagate': expected dense tensors, or another group"
        )
    return SparseReduction(elements._replace(op=_OPERATORS[op]), op == ReduceOp.AVG)


class SparseTensor:
    """A sparse tensor on its way: what it gives, in memory of this process, and how it takes the result."""

    __slots__ = ("_divisor", "_row", "_tensor", "indices", "size", "values")

    def __init__(self, tensor: Tensor, reduction: SparseReduction, world: int) -> None:
        self._tensor = tensor
        self._divisor = world if reduction.is_mean else 1
        if reduction.elements.op != "sum" and not tensor.is_coalesced():
            # What a tensor has several times at an index is their sum, which is what is compared.
            tensor = tensor.coalesce()
        places, values = tensor._indices().cpu(), tensor._values().cpu().resolve_conj().resolve_neg()
        if values.is_complex():
            # Two real numbers, which lie together as another dense dimension.
            values = torch.view_as_real(values)
        flat = torch.zeros(places.shape[1], dtype=torch.int64)
        for size, along in zip(tensor.shape, places, strict=False):
            flat = flat * size + along
        self._row = 1
        for size in values.shape[1:]:
            self._row *= size
        #: Elements of the tensor, those that are not there too.
        self.size = tensor.numel() * (2 if tensor.is_complex() else 1)
        self.indices = (flat[:, None] * self._row + torch.arange(self._row)).reshape(-1)
        self.values = values.reshape(-1).contiguous()

    @property
    def addresses(self) -> Addresses:
        """Where its entries lie."""
        return (self.indices.data_ptr(), self.indices.nbytes, self.values.data_ptr(), self.values.nbytes)

    def takes(self, result: SparseResult) -> After:
        """Makes the tensor the result."""
        return lambda: self._take(result)

    def _take(self, result: SparseResult) -> None:
        indices = torch.empty(result.entries, dtype=torch.int64)
        tensor, dtype = self._tensor, self.values.dtype
        values = torch.empty(result.entries, dtype=dtype)
        result.write(indices.data_ptr(), indices.nbytes, values.data_ptr(), values.nbytes)
        if self._divisor != 1:
            values /= self._divisor
        if tensor.is_complex():
            values = torch.view_as_complex(values.reshape(-1, 2))
        # Of a row, all elements are there or none.
        rows = indices[:: self._row] // self._row if self._row else indices
        count = rows.numel()
        places = torch.empty((tensor.sparse_dim(), count), dtype=torch.int64)
        for dimension in reversed(range(tensor.sparse_dim())):
            places[dimension] = rows % tensor.shape[dimension]
            rows = rows // tensor.shape[dimension]
        whole = torch.sparse_coo_tensor(
            places, values.reshape(count, *tensor.shape[tensor.sparse_dim() :]), tensor.shape, is_coalesced=True, check_invariants=False
        )
        tensor.copy_(whole)
