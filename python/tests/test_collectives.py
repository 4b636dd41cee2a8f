"""Every collective, type and operator between processes, against values that are computed apart."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import numpy as np
import pytest

import fanin
import references
from references import FLOATS, INTEGERS, OPERATORS, contribution

WORKERS = 3
SIZES = [0, 1, 7, 1_000, 40_000]


def same(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], what: object) -> None:
    assert got.dtype == expected.dtype, what
    # Means of three are rounded: once here, in the same way.
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64), err_msg=str(what))


def reductions(comm: fanin.Communicator) -> list[bytes]:
    """All types and operators; gives the results' bytes, which must be the same at all ranks."""
    everything = []
    for name in sorted(FLOATS | INTEGERS):
        for op in [op for op, names in OPERATORS.items() if name in names]:
            for elements in SIZES if (name, op) in {("float32", "sum"), ("bfloat16", "avg")} else [37]:
                given = [contribution(name, elements, rank) for rank in range(comm.world)]
                expected = references.reduction(name, op, given)
                mine = given[comm.rank].copy()
                got = comm.allreduce(mine, op)
                if (name, op) != ("float32", "avg") and (name, op) != ("float64", "avg"):
                    same(got, expected, (name, op, elements))
                np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-6)
                same(mine, given[comm.rank], "the input stays as it is")
                everything.append(got.tobytes())
                assert comm.allreduce(mine, op, out=mine) is mine
                assert mine.tobytes() == got.tobytes(), (name, op, elements, "in place")
    return everything


def sparse(comm: fanin.Communicator) -> None:
    """Sparse allreduces against dense ones."""
    for name, dtype in (("sum", np.float32), ("max", np.float64), ("min", np.int32), ("sum", np.int64), ("max", np.uint8)):
        op: Any = name
        for size, count, way in ((5_000, 40, "lists"), (100, 90, "dense")):
            inputs = []
            for rank in range(comm.world):
                random = np.random.default_rng(rank)
                indices = random.choice(size, count, replace=False)
                inputs.append((indices, random.integers(0, 4, count).astype(dtype)))
            expected: dict[int, Any] = {}
            for indices, values in inputs:
                for index, value in zip(indices.tolist(), values.tolist(), strict=True):
                    reduction = {"sum": lambda x, y: x + y, "min": min, "max": max}[name]
                    expected[index] = reduction(expected[index], value) if index in expected else value
            got_indices, got_values = comm.allreduce_sparse(*inputs[comm.rank], size, op)
            assert got_indices.dtype == np.int64
            assert got_values.dtype == dtype
            assert dict(zip(got_indices.tolist(), got_values.tolist(), strict=True)) == expected
            assert got_indices.tolist() == sorted(expected)
            assert comm.sparse_path.startswith(way), comm.sparse_path
    # Lists and other integers are indices too; of an index that comes twice the values are combined.
    got = comm.allreduce_sparse(np.array([3, 1, 3], np.uint16), [1.0, 2.0, 4.0], 2**40)
    assert [each.tolist() for each in got] == [[1, 3], [2.0 * comm.world, 5.0 * comm.world]]
    handle = comm.allreduce_sparse_async([comm.rank], [1.0], 3)
    assert handle.wait()[0].tolist() == [0, 1, 2]
    assert handle.wait() is handle.wait()
    assert [len(each) for each in comm.allreduce_sparse([], [], 7)] == [0, 0]
    for indices, values, size, text in [
        ([0, 9], [1.0, 2.0], 9, r"indices\[1\] = 9: expected below the size of the vector, 9"),
        ([0, -2], [1.0, 2.0], 9, r"indices\[1\] = -2: expected 0 or more"),
        ([0, 1], [1.0], 9, r"values are of shape \(1,\), and indices of \(2,\)"),
        ([0.5], [1.0], 9, "expected a list of whole numbers"),
        ([0], [1.0j], 9, "no sparse sum of complex128"),
        ([0], [1.0], -1, "size = -1: expected 0 to"),
    ]:
        with pytest.raises(fanin.ArgumentError, match=text):
            comm.allreduce_sparse(indices, values, size)
    with pytest.raises(fanin.ArgumentError, match="operator = avg: expected sum, min or max; divide a sum"):
        comm.allreduce_sparse([0], [1.0], 9, "avg")  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_sparse(transport: Any) -> None:
    fanin.run(sparse, workers=WORKERS, transport=transport)


def sparse_by_switch(comm: fanin.Communicator) -> None:
    indices = np.arange(0, 30_000, comm.rank + 1)
    got_indices, got_values = comm.allreduce_sparse(indices, (indices % 7).astype(np.float32), 40_000)
    assert comm.sparse_path.startswith("switch: summed by the switch"), comm.sparse_path
    assert got_indices.tolist() == list(range(30_000))
    owners = sum((np.arange(30_000) % (rank + 1) == 0).astype(np.float32) for rank in range(comm.world))
    assert np.array_equal(got_values, owners * (np.arange(30_000) % 7).astype(np.float32))


def test_the_switch_sums_sparse_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FANIN_SPARSE", "switch")
    fanin.run(sparse_by_switch, workers=WORKERS, transport="udp")


def others(comm: fanin.Communicator) -> None:
    """The collectives beside allreduce."""
    world, rank = comm.world, comm.rank
    for name in ("float32", "int8"):
        for elements in (1, 5, 3_000):
            given = [contribution(name, world * elements, each) for each in range(world)]
            expected = references.reduction(name, "sum", given)
            mine = given[rank].copy()
            for root in range(world):
                got = comm.reduce(mine, "sum", root)
                if rank == root:
                    same(got, expected, ("reduce", name, elements))
                else:
                    assert got is None
                vector = given[rank].copy()
                assert comm.broadcast(vector, root) is vector
                same(vector, given[root], ("broadcast", name, elements))
            part = slice(rank * elements, (rank + 1) * elements)
            same(comm.reduce_scatter(mine), expected[part], ("reduce_scatter", name, elements))
            in_place = mine.copy()
            comm.reduce_scatter(in_place, out=in_place[part])
            same(in_place[part], expected[part], ("reduce_scatter in place", name, elements))
            same(comm.all_gather(mine), np.concatenate(given), ("all_gather", name, elements))
            whole = np.zeros(world * world * elements, mine.dtype)
            own = whole[rank * world * elements : (rank + 1) * world * elements]
            own[:] = mine
            comm.all_gather(own, out=whole)
            same(whole, np.concatenate(given), ("all_gather in place", name, elements))
    rows = np.full((world * 2, 4), rank, np.int32)
    assert comm.reduce_scatter(rows).shape == (2, 4)
    assert comm.all_gather(rows).shape == (world * world * 2, 4)
    assert comm.all_gather(np.float32(rank)).tolist() == [0.0, 1.0, 2.0]
    # Copies of what cannot be reduced.
    names = np.array(["a", "bc", "d"][rank : rank + 1], dtype="U2")
    assert comm.all_gather(names).tolist() == ["a", "bc", "d"]
    record = np.zeros(2, dtype=[("x", "i4"), ("y", "f8")])
    record["y"] = rank
    assert comm.broadcast(record, 2)["y"].tolist() == [2.0, 2.0]
    # Types with the same bits as others.
    flags = np.array([rank == 0, True, False])
    assert comm.allreduce(flags, "or").tolist() == [True, True, False]
    assert comm.allreduce(np.array([2**32 - 1, rank], np.uint32)).tolist() == [2**32 - 3, 3]
    assert comm.allreduce(np.array([1 + 2j * rank], np.complex64)).tolist() == [3 + 6j]


def in_the_background(comm: fanin.Communicator) -> None:
    """Handles: in order, with callbacks, awaited."""
    handles = [comm.allreduce_async(np.full(500, number + comm.rank)) for number in range(20)]
    told: list[fanin.Handle[Any]] = []
    done = threading.Event()
    handles[-1].add_done_callback(told.append)
    handles[-1].add_done_callback(lambda _: done.set())
    # A call that is made now comes after them.
    comm.barrier()
    assert all(handle.done() for handle in handles)
    for number, handle in enumerate(handles):
        assert handle.wait()[0] == 3 * number + 3
        assert handle.exception() is None
    done.wait()
    assert told == [handles[-1]]
    handles[0].add_done_callback(told.append)
    assert told[-1] is handles[0], "at once where it is done already"

    async def two() -> tuple[Any, Any]:
        return tuple(await asyncio.gather(gather(), scatter()))

    async def gather() -> Any:
        return await comm.all_gather_async(np.array([comm.rank]))

    async def scatter() -> Any:
        return await comm.reduce_scatter_async(np.arange(3))

    first, second = asyncio.run(two())
    assert first.tolist() == [0, 1, 2]
    assert second.tolist() == [3 * comm.rank]
    comm.barrier_async().wait()
    assert comm.broadcast_async(np.array([comm.rank]), 1).wait().tolist() == [1]
    rooted = comm.reduce_async(np.array([1.5]), "max", 2).wait()
    assert (rooted is None) == (comm.rank != 2)


def groups(comm: fanin.Communicator) -> None:
    """Communicators within communicators, several at a time."""
    pair = comm.split(0 if comm.rank < 2 else None, key=-comm.rank)
    alone = comm.split(comm.rank)
    assert alone is not None
    assert (alone.world, alone.transport) == (1, "alone")
    if comm.rank == 2:
        assert pair is None
    else:
        assert pair is not None
        assert (pair.world, pair.rank) == (2, 1 - comm.rank)
        assert pair.allreduce(np.array([10 * comm.rank])).tolist() == [10]
        pair.close()
        pair.close()
        assert pair.closed
        with pytest.raises(fanin.ClosedError) as raised:
            pair.barrier()
        assert raised.value.rank == 1 - comm.rank
    alone.close()
    comm.barrier()


def everything(comm: fanin.Communicator) -> tuple[str, list[bytes]]:
    results = reductions(comm)
    others(comm)
    in_the_background(comm)
    groups(comm)
    return comm.transport, results


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_every_collective_gives_every_rank_the_right_values(transport: Any) -> None:
    answers = fanin.run(everything, workers=WORKERS, transport=transport, timeout=300.0)
    assert [path for path, _ in answers] == [transport] * WORKERS
    assert all(results == answers[0][1] for _, results in answers), "all ranks have the same bits"
    assert len(answers[0][1]) > 60


#: Which rank's contribution each rank gives.
ORDERS = [(0, 1, 2), (1, 2, 0), (2, 1, 0)]


def uneven(name: str, rank: int) -> np.ndarray[Any, Any]:
    """Floats of different magnitudes, whose plain sums depend on the order of additions; not a whole number of blocks."""
    draw = np.random.default_rng([7, rank])
    return np.ldexp(draw.standard_normal(3_003), draw.integers(-9, 3, 3_003)).astype(references.dtype_of(name))


def reproducible(outer: fanin.Communicator, address: str, transport: Any, by: Any) -> dict[tuple[str, str], set[bytes]]:
    """All bits that reductions have for contributions which change ranks, in a job that was joined with the keyword."""
    bits: dict[tuple[str, str], set[bytes]] = {}
    job = f"reproducible-{transport}"
    with fanin.init(rank=outer.rank, world=outer.world, job=job, switch=address, transport=transport, reproducible=by) as comm:
        assert comm.transport == transport
        for name in sorted(FLOATS):
            exact = sum(uneven(name, each).astype(np.float64) for each in range(comm.world))
            for order in ORDERS:
                mine = uneven(name, order[comm.rank])
                total = comm.allreduce(mine)
                np.testing.assert_allclose(total.astype(np.float64), exact, rtol=0.01, atol=1e-5)
                bits.setdefault((name, "sum"), set()).add(total.tobytes())
                bits.setdefault((name, "avg"), set()).add(comm.allreduce(mine, "avg").tobytes())
        with pytest.raises(fanin.ArgumentError, match="there is no reproducible prod of f64"):
            comm.allreduce(np.ones(3), "prod")
    return bits


@pytest.mark.parametrize("by", [True, "element", "block"])
def test_reproducible_sums_have_the_same_bits_by_every_path_and_in_every_order(by: bool | str) -> None:
    for name in sorted(FLOATS - {"bfloat16"}):
        first, second, third = (uneven(name, rank) for rank in range(WORKERS))
        assert ((first + second) + third).tobytes() != ((third + second) + first).tobytes(), "plain sums differ, or this tests nothing"
    answers = []
    for transport in ("shm", "udp"):
        host = fanin._native.Host("127.0.0.1:0", linger=1.0)
        try:
            answers += fanin.run(reproducible, host.address, transport, by, workers=WORKERS, timeout=300.0)
        finally:
            host.close()
    assert all(answer == answers[0] for answer in answers), "the same by both paths, at all ranks"
    assert [len(bits) for bits in answers[0].values()] == [1] * 2 * len(FLOATS), "the same in every order"


def packings(outer: fanin.Communicator, address: str, by: Any) -> tuple[dict[str, set[bytes]], float]:
    """All bits that sums of some values have alone and in larger arrays, and how far they are from exact ones, in parts of the bound."""
    bits: dict[str, set[bytes]] = {}
    worst = 0.0
    with fanin.init(rank=outer.rank, world=outer.world, job=f"packings-{by}", switch=address, reproducible=by) as comm:
        for name in sorted(FLOATS):
            all_ranks = [uneven(name, rank)[:400] for rank in range(comm.world)]
            draw = np.random.default_rng(comm.rank)
            for offset in (0, 1, 100, 256, 999):
                large = (draw.standard_normal(offset + 450) * 50).astype(all_ranks[0].dtype)
                large[offset : offset + 400] = all_ranks[comm.rank]
                bits.setdefault(name, set()).add(comm.allreduce(large)[offset : offset + 400].tobytes())
            bits[name].add(comm.allreduce(all_ranks[comm.rank]).tobytes())
            if name == "float32":
                total = comm.allreduce(all_ranks[comm.rank])
                for index, got in enumerate(total.tolist()):
                    summands = [float(values[index]) for values in all_ranks]
                    bound = comm.world * 4 / 2**31 * max(map(abs, summands)) + abs(got) / 2**24
                    worst = max(worst, abs(got - math.fsum(summands)) / bound)
    return bits, worst


@pytest.mark.parametrize("by", ["element", "block"])
def test_sums_by_element_do_not_depend_on_the_array_and_are_within_their_bound(by: str) -> None:
    """By block they depend on it: so the same bits are no accident."""
    host = fanin._native.Host("127.0.0.1:0", linger=1.0)
    try:
        answers = fanin.run(packings, host.address, by, workers=WORKERS, timeout=300.0)
    finally:
        host.close()
    assert all(answer == answers[0] for answer in answers)
    bits, worst = answers[0]
    assert len(bits) == len(FLOATS)
    if by == "element":
        assert [len(seen) for seen in bits.values()] == [1] * len(FLOATS)
        assert 0.1 < worst <= 1.0
    else:
        assert max(len(seen) for seen in bits.values()) > 1


def wait_with_the_lock(comm: fanin.Communicator) -> int:
    """Rank 1 comes to the barrier when another thread of rank 0 has spoken in a second job; rank 0's main thread waits at the barrier."""
    second = comm.split(0)
    assert second is not None
    if comm.rank == 0:
        said = []

        def say() -> None:
            said.append(second.allreduce(np.array([7])))

        talker = threading.Thread(target=say)
        talker.start()
        comm.barrier()
        talker.join()
        return int(said[0][0])
    heard = second.allreduce(np.array([0]))
    comm.barrier()
    return int(heard[0])


def test_a_rank_that_waits_lets_its_other_threads_run() -> None:
    assert fanin.run(wait_with_the_lock, workers=2, timeout=300.0) == [7, 7]
