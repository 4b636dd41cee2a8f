"""PyTorch's types and operators in the communicator's words, and which it has none for."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch.distributed import ReduceOp

#: Types that the communicator computes with.
NATIVE = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
}

#: A complex number as two real ones; for these operators that makes no difference.
_COMPLEX = {torch.complex128: "f64", torch.complex64: "f32", torch.complex32: "f16"}
_COMPLEX_OPERATORS = {"sum", "avg"}

#: A truth value as the byte 0 or 1: sums are "any" and products "all", as NCCL has them.
_BOOL_OPERATORS = {"sum": "max", "prod": "min", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}

_OPERATORS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "and",
    ReduceOp.BOR: "or",
    ReduceOp.BXOR: "xor",
    # The factor is applied before the sum.
    ReduceOp.PREMUL_SUM: "sum",
}


class Elements(NamedTuple):
    """How the communicator sees a tensor's elements."""

    #: The communicator's name of the type.
    dtype: str
    #: How many of them an element of the tensor is.
    per_element: int
    #: The operator.
    op: str


@cache
def copied(dtype: torch.dtype) -> Elements:
    """For collectives that only copy: any type, as bytes where the communicator has no name for it."""
    name = NATIVE.get(dtype)
    return Elements("u8", dtype.itemsize, "max") if name is None else Elements(name, 1, "max")


@cache
def reduced(dtype: torch.dtype, op: ReduceOp.RedOpType) -> Elements | str:
    """For collectives that reduce; a text says why the communicator cannot."""
    operator = _OPERATORS.get(op)
    if operator is None:
        return f"there is no operator {op}"
    if dtype in NATIVE:
        return Elements(NATIVE[dtype], 1, operator)
    if dtype in _COMPLEX and operator in _COMPLEX_OPERATORS:
        return Elements(_COMPLEX[dtype], 2, operator)
    if dtype == torch.bool and operator in _BOOL_OPERATORS:
        return Elements("u8", 1, _BOOL_OPERATORS[operator])
    return f"{operator} of {dtype} is not computed by switches"
