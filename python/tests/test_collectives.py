"""Every collective, type and operator between processes, against values that are computed apart."""

from __future__ import annotations

import asyncio
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
