"""PyTorch's types and operators in the communicator's words, and which it has none for."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch.distributed import ReduceOp

from fanin.errors import ArgumentError

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

#: Numbers without a sign whose sums and products have the same bits as those of numbers with one: both wrap.
_UNSIGNED = {torch.uint16: "i16", torch.uint32: "i32", torch.uint64: "i64"}
_UNSIGNED_OPERATORS = {"sum", "prod", "and", "or", "xor"}

#: What gives a NaN that any rank has, as ``torch.amin`` and ``torch.amax`` do, in place of what gives the others' numbers.
_PROPAGATING = {"min": "minimum", "max": "maximum"}

#: What floats and integers have.
_FLOAT_OPERATORS = {"sum", "avg", "prod", "min", "max"}
_INTEGER_OPERATORS = {"sum", "prod", "min", "max", "and", "or", "xor"}

#: Integers with a scale beside them, which another rank's elements do not have.
_QUANTISED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}

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
    """For collectives that only copy: any type, as bytes where the communicator has no name for it.

    Raises:
        ArgumentError: A tensor of that type is more than its elements.
    """
    if dtype in _QUANTISED:
        raise ArgumentError(f"a tensor of {dtype} has a scale beside its elements: give its int_repr(), and the scale by itself")
    name = NATIVE.get(dtype)
    return Elements("u8", dtype.itemsize, "max") if name is None else Elements(name, 1, "max")


@cache
def reduced(dtype: torch.dtype, op: ReduceOp.RedOpType, *, propagates: bool = False) -> Elements:
    """For collectives that reduce. Of a NaN and a number, MIN and MAX give the number, or the NaN where it ``propagates``.

    Raises:
        ArgumentError: There is no such reduction; says which there are.
    """
    operator = _OPERATORS.get(op)
    known = _reductions(dtype)
    scales = op != ReduceOp.PREMUL_SUM or dtype.is_floating_point or dtype.is_complex
    if operator in known and scales:
        elements = known[operator]
        if propagates and dtype.is_floating_point:
            return elements._replace(op=_PROPAGATING.get(elements.op, elements.op))
        return elements
    asked = op.name
    if not known:
        raise ArgumentError(f"there is no {asked} of {dtype}: elements of that type are not reduced, only copied")
    there = [each.name for each, name in _OPERATORS.items() if name in known]
    if not (dtype.is_floating_point or dtype.is_complex):
        there.remove(ReduceOp.PREMUL_SUM.name)
    raise ArgumentError(f"there is no {asked} of {dtype}: expected one of {', '.join(there)}")


def _reductions(dtype: torch.dtype) -> dict[str, Elements]:
    """How the communicator sees elements of a type, by the operators that it has for them."""
    if dtype in NATIVE:
        operators = _FLOAT_OPERATORS if dtype.is_floating_point else _INTEGER_OPERATORS
        return {operator: Elements(NATIVE[dtype], 1, operator) for operator in operators}
    if dtype in _UNSIGNED:
        return {operator: Elements(_UNSIGNED[dtype], 1, operator) for operator in _UNSIGNED_OPERATORS}
    if dtype in _COMPLEX:
        return {operator: Elements(_COMPLEX[dtype], 2, operator) for operator in _COMPLEX_OPERATORS}
    if dtype == torch.bool:
        return {operator: Elements("u8", 1, same) for operator, same in _BOOL_OPERATORS.items()}
    return {}
