"""Ranks that die, are late, or call something else: every other rank gets an error, nobody waits for ever, and nothing crashes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fanin.errors import JobFailedError, JobTimeoutError
from fanin.torch import CollectiveError, CollectiveTimeoutError

WORLD = 3
DEAD = 1


def sync() -> None:
    """A call that is waited for at once."""
    dist.all_reduce(torch.ones(10))


def waited() -> None:
    """Calls in the background."""
    works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
    for work in works:
        work.wait()


def by_future() -> None:
    """Through a future's value."""
    dist.all_reduce(torch.ones(10), async_op=True).get_future().wait()


def by_callback() -> None:
    """Through a future that depends on the first."""
    dist.all_reduce(torch.ones(10), async_op=True).get_future().then(lambda done: done.value()[0] + 1).wait()


WAYS = [sync, waited, by_future, by_callback]


def leaves(rank: int, way: Callable[[], None], how: str) -> str:
    """A rank is gone; what the others get."""
    dist.barrier()
    if rank == DEAD:
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError) as raised:
        way()
    if way in (sync, waited):
        assert isinstance(raised.value, CollectiveError | JobFailedError | dist.DistBackendError)
        assert raised.value.cause == DEAD and raised.value.rank == rank
    # And for ever.
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(1))
    return str(raised.value)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_rank_dies(way: Callable[[], None], how: str) -> None:
    """All others are told which one, however they wait."""
    ended = ranks.outcomes(WORLD, leaves, way, how)
    assert ended[DEAD].code == (3 if how == "exit" else -signal.SIGKILL)
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error
        assert ended[rank].code == 0
        assert "rank 1" in ended[rank].value


def the_first_dies(rank: int) -> None:
    """The process with the switch is gone."""
    dist.barrier()
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(CollectiveError):
        dist.all_reduce(torch.ones(10))


def test_rank_0_dies() -> None:
    """With it the switch."""
    ended = ranks.outcomes(WORLD, the_first_dies)
    assert [(end.error, end.code) for end in ended] == [(None, -signal.SIGKILL), (None, 0), (None, 0)]


def trains(rank: int, how: str) -> str:
    """Training with DistributedDataParallel when a rank goes."""
    model = DistributedDataParallel(nn.Linear(64, 64), bucket_cap_mb=0.01)
    if how == "hook":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    for step in range(1_000):
        if rank == DEAD and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            model(torch.ones(4, 64)).sum().backward()
        except RuntimeError as error:
            return str(error)
    raise AssertionError("it has gone on")


@pytest.mark.parametrize("how", ["plain", "hook"])
def test_a_rank_dies_in_training(how: str) -> None:
    """``backward`` raises; the process does not crash."""
    ended = ranks.outcomes(WORLD, trains, how)
    assert ended[DEAD].code == -signal.SIGKILL
    for rank in (0, 2):
        assert ended[rank].error is None, ended[rank].error
        assert ended[rank].code == 0
        assert "rank 1" in ended[rank].value


def late(rank: int, way: Callable[[], None]) -> tuple[float, str]:
    """A rank does not come for longer than the timeout."""
    dist.barrier()
    begin = time.monotonic()
    if rank == DEAD:
        time.sleep(6)
    with pytest.raises(RuntimeError) as raised:
        way()
    if rank != DEAD and way in (sync, waited):
        assert isinstance(raised.value, CollectiveTimeoutError | JobTimeoutError)
        assert raised.value.cause == DEAD
    return time.monotonic() - begin, str(raised.value)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_rank_is_late(way: Callable[[], None]) -> None:
    """After the timeout that the group was made with every rank has an error, also the late one."""
    for elapsed, text in ranks.run(WORLD, late, way, timeout_s=1.5):
        assert elapsed < 30
        assert "rank 1" in text


def late_in_group(rank: int) -> str:
    """A group with a timeout of its own."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    if rank == 0:
        with pytest.raises(CollectiveTimeoutError, match=" timeout ") as raised:
            dist.barrier(group)
        dist.distributed_c10d._get_default_store().set("seen", "1")
        return str(raised.value)
    dist.distributed_c10d._get_default_store().wait(["seen"])
    return ""


def test_timeout_of_a_group() -> None:
    """Not the one of the default group."""
    assert "rank 1" in ranks.run(2, late_in_group)[0]


def impatient(rank: int) -> None:
    """``wait`` with a timeout gives up waiting, and nothing else."""
    tensor = torch.ones(4)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(CollectiveTimeoutError):
            work.wait(timedelta(milliseconds=50))
        dist.distributed_c10d._get_default_store().set("impatient", "1")
        work.wait()
    else:
        dist.distributed_c10d._get_default_store().wait(["impatient"])
        dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 4


def test_wait_with_a_timeout() -> None:
    """The call is still under way."""
    ranks.run(2, impatient)


def later_timeout(rank: int, way: Callable[[], None]) -> str:
    """A timeout that is set when the group is there already."""
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1))
    dist.barrier()
    if rank == DEAD:
        time.sleep(4)
    with pytest.raises(RuntimeError) as raised:
        way()
    return str(raised.value)


@pytest.mark.parametrize("way", [sync, by_future], ids=lambda way: way.__name__)
def test_timeout_that_is_set_later(way: Callable[[], None]) -> None:
    """It ends the group as well."""
    for text in ranks.run(WORLD, later_timeout, way):
        assert "1 s" in text


def different(rank: int, what: str) -> str:
    """Ranks do not call the same."""
    with pytest.raises(CollectiveError) as raised:
        if what == "length":
            dist.all_reduce(torch.ones(3 + (rank == 2)))
        elif what == "type":
            dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank == 2 else torch.float32))
        elif rank == 2:
            dist.broadcast(torch.ones(3), src=0)
        else:
            dist.all_reduce(torch.ones(3))
    return str(raised.value)


@pytest.mark.parametrize("what", ["length", "type", "collective"])
def test_ranks_call_different_things(what: str) -> None:
    """Both calls are named."""
    for text in ranks.run(WORLD, different, what):
        assert "rank 2" in text


def absent(rank: int, store: str) -> str:
    """A rank that never comes."""
    if rank == DEAD:
        return ""
    with pytest.raises(RuntimeError) as raised:
        dist.init_process_group("fanin", init_method=f"file://{store}", rank=rank, world_size=WORLD, timeout=timedelta(seconds=2))
    assert not dist.is_initialized()
    return str(raised.value)


def test_a_rank_never_comes(tmp_path: object) -> None:
    """Making the group fails everywhere, and says who is missing."""
    texts = ranks.run(WORLD, absent, f"{tmp_path}/store", backend="")
    assert "rank 1" in texts[0]
    assert "rank 1" in texts[2] or "rank 0" in texts[2]
