"""Operators that jobs bring along, between processes, on numpy's structures and complex numbers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fanin

EXAMPLES = Path(__file__).parents[2] / "examples" / "operators"
WORKERS = 3
EXTREMES = np.dtype([("count", "u4"), ("smallest", "f4"), ("largest", "f4")])


def operators() -> list[fanin.CustomOperator]:
    return [
        fanin.CustomOperator.from_wasm(EXAMPLES / "complex_product.wasm", "complex64"),
        fanin.CustomOperator.from_wasm((EXAMPLES / "extremes.wasm").read_bytes(), EXTREMES, name="extremes"),
        fanin.CustomOperator.from_wasm(EXAMPLES / "majority.wasm", "uint8"),
        fanin.CustomOperator.from_wasm(EXAMPLES / "top_k.wasm", ("u1", 64)),
    ]


def complex_numbers(rank: int, count: int) -> np.ndarray[Any, Any]:
    index = np.arange(count)
    parts = (index * 7 + rank * 3) % 5 - 2 + 1j * ((index * 3 + rank) % 4 - 1)
    return parts.astype("complex64").reshape(-1, 5)


def samples(rank: int, count: int) -> np.ndarray[Any, Any]:
    array = np.zeros(count, EXTREMES)
    array["count"], array["smallest"], array["largest"] = rank + 1, -rank - 1.0, np.arange(count) % 7 + rank
    return array


def reductions(comm: fanin.Communicator) -> str:
    product, extremes, majority, _ = operators()
    given = [complex_numbers(rank, 5_005) for rank in range(comm.world)]
    expected = given[0] * given[1] * given[2]
    got = comm.allreduce(given[comm.rank], product)
    np.testing.assert_array_equal(got, expected)
    # Not by their bytes: over UDP the sign of a zero depends on which factor comes first.
    np.testing.assert_array_equal(comm.allreduce_async(given[comm.rank], product).wait(), expected)

    mine = samples(comm.rank, 3_000)
    result = comm.reduce_scatter(mine, extremes)
    assert result.dtype == EXTREMES and result.shape == (1_000,)
    assert (result["count"] == 6).all() and (result["smallest"] == -3.0).all()
    part = np.arange(1_000 * comm.rank, 1_000 * (comm.rank + 1))
    np.testing.assert_array_equal(result["largest"], part % 7 + 2)
    rooted = comm.reduce(mine, extremes, root=1)
    assert (rooted is None) == (comm.rank != 1)

    votes = np.array([[0b001], [0b011], [0b111]], "u1")[comm.rank]
    assert comm.allreduce(votes, majority, out=votes) is votes
    assert votes[0] == 0b011
    np.testing.assert_array_equal(comm.allreduce(np.ones(9, "f4")), np.full(9, comm.world, "f4"))

    with pytest.raises(fanin.ArgumentError, match="elements of type float32.*operator 'complex_product' reduces complex64"):
        comm.allreduce(np.ones(4, "f4"), product)
    unknown = fanin.CustomOperator.from_wasm(EXAMPLES / "float_sum.wasm", "float32")
    with pytest.raises(fanin.ArgumentError, match="joined without the operator `float_sum`"):
        comm.allreduce(np.ones(4, "f4"), unknown)
    return comm.transport


@pytest.mark.parametrize("transport", ["udp", "shm"])
def test_operators_reduce_structures_and_complex_numbers(transport: Any) -> None:
    assert fanin.run(reductions, workers=WORKERS, transport=transport, operators=operators()) == [transport] * WORKERS


def test_one_rank_alone() -> None:
    product = operators()[0]
    with fanin.init(rank=0, world=1, operators=[product]) as comm:
        given = complex_numbers(0, 10)
        np.testing.assert_array_equal(comm.allreduce(given, product), given)


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(fanin.ArgumentError, match="operator `operator`: its module is not valid"):
        fanin.CustomOperator.from_wasm(b"\0asm nonsense", "float32")
    with pytest.raises(fanin.ArgumentError, match="operator `extremes`: element_bytes = 12: expected 8"):
        fanin.CustomOperator.from_wasm(EXAMPLES / "extremes.wasm", "float64")
    with pytest.raises(fanin.ArgumentError, match="without Python objects"):
        fanin.CustomOperator.from_wasm(EXAMPLES / "extremes.wasm", object)
    with pytest.raises(fanin.ConfigurationError, match="operators = 5 of them: expected at most 4"):
        fanin.init(rank=0, world=1, operators=[*operators(), operators()[0]])
    again = pickle.loads(pickle.dumps(operators()[1]))
    assert (again.digest, again.dtype, again.name) == (operators()[1].digest, EXTREMES, "extremes")
    assert repr(again).startswith("<fanin.CustomOperator 'extremes' of ")
