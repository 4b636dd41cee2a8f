"""What collectives must give, computed apart from them: by Python's own numbers, element by element."""

from __future__ import annotations

import functools
import operator
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = {"float64", "float32", "float16", "bfloat16"}
INTEGERS = {"int8", "int16", "int32", "int64", "uint8"}
OPERATORS = {
    "sum": FLOATS | INTEGERS,
    "prod": FLOATS | INTEGERS,
    "min": FLOATS | INTEGERS,
    "max": FLOATS | INTEGERS,
    "minimum": FLOATS | INTEGERS,
    "maximum": FLOATS | INTEGERS,
    "avg": FLOATS,
    "and": INTEGERS,
    "or": INTEGERS,
    "xor": INTEGERS,
}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def contribution(name: str, elements: int, rank: int) -> np.ndarray[Any, Any]:
    """What a rank gives. Small whole numbers: sums and products are exact in every type, in every order."""
    draw = np.random.default_rng([elements, rank])
    low = 0 if name.startswith("uint") else -2
    return draw.integers(low, 3, elements).astype(dtype_of(name))


def reduction(name: str, op: str, contributions: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The reduction of all contributions."""
    step: Any = {
        "sum": operator.add,
        "avg": operator.add,
        "prod": operator.mul,
        "min": min,
        "max": max,
        "minimum": min,
        "maximum": max,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
    }[op]
    kind = int if name in INTEGERS else float
    columns = zip(*([kind(value) for value in one.tolist()] for one in contributions), strict=True)
    values = [functools.reduce(step, column) for column in columns]
    if op == "avg":
        values = [value / len(contributions) for value in values]
    if name in INTEGERS:
        bits = dtype_of(name).itemsize * 8
        values = [value % 2**bits for value in values]
        return np.array(values, dtype=np.uint64).astype(f"uint{bits}").view(dtype_of(name))
    return np.array(values, dtype=np.float64).astype(dtype_of(name))
