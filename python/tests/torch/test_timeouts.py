"""Timeouts are those that were set, longer or shorter, of a group or a call; and who is blamed is who did not come."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import ranks
import torch
import torch.distributed as dist

from fanin.torch import CollectiveError, CollectiveTimeoutError

WORLD = 3
LATE = 1


def told(action: Callable[[], object]) -> tuple[float, str, int | None]:
    """How long it takes until an error comes, what it says, and whom it blames."""
    begin = time.monotonic()
    with pytest.raises(CollectiveTimeoutError) as raised:
        action()
    assert isinstance(raised.value, dist.DistBackendError)
    assert raised.value.__cause__ is not None
    return time.monotonic() - begin, str(raised.value), raised.value.cause


def wait_for_all() -> None:
    """Ranks leave together, by the default group's store."""
    store = dist.distributed_c10d._get_default_store()
    if store.add("done", 1) == WORLD:
        store.set("all", "")
    store.wait(["all"], timedelta(seconds=60))


def late(rank: int, how: str, seconds: float, others: float) -> tuple[float, str, int | None]:
    """Rank 1 does not come; timeouts are set in different ways."""
    group = dist.new_group(timeout=timedelta(seconds=seconds)) if how == "new_group" else dist.group.WORLD
    assert group is not None
    if how == "set_timeout":
        # Each rank its own: the shorter one counts.
        dist.set_timeout(timedelta(seconds=seconds if rank == 0 else others))
    dist.barrier(group)
    ended = (0.0, "", LATE)
    if rank != LATE:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=seconds if how == "call" and rank == 0 else others)
        options.asyncOp = how == "background"
        ones = [torch.ones(4)]
        ended = told(lambda: group.allreduce(ones, options).wait() if how == "call" else dist.all_reduce(ones[0], group=group))
    wait_for_all()
    return ended


@pytest.mark.parametrize("transport", ["shm", "udp"])
@pytest.mark.parametrize(("how", "seconds"), [("init", 3.0), ("new_group", 2.0), ("set_timeout", 2.0), ("call", 2.0)])
def test_a_timeout_is_as_long_as_it_was_set(how: str, seconds: float, transport: str) -> None:
    """Not half as long again; and the rank that did not come is blamed, not one that waited."""
    whole = seconds if how == "init" else 40.0
    outcomes = ranks.run(WORLD, late, how, seconds, 40.0, timeout_s=whole, environ={"FANIN_TRANSPORT": transport})
    for rank, (elapsed, text, cause) in enumerate(outcomes):
        if rank == LATE:
            continue
        assert cause == LATE and f"rank {LATE} has not called" in text, text
        assert f"longer than the {seconds:g} s that ranks wait" in text, text
        # How late on a machine with other work is anybody's guess, but not as late as the others' timeout.
        assert seconds - 0.2 <= elapsed < 20.0, (elapsed, text)


def longer(rank: int, how: str) -> None:
    """Rank 1 comes after the timeout that the group was made with, and before the one that was set."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if how == "set_timeout":
        dist.set_timeout(timedelta(seconds=30), group)
    ones = torch.ones(4)
    if rank == LATE:
        time.sleep(3)
    options = dist.AllreduceOptions()
    if how == "call":
        options.timeout = timedelta(seconds=30)
    group.allreduce([ones], options).wait()
    assert ones.tolist() == [float(WORLD)] * 4
    wait_for_all()


@pytest.mark.parametrize("transport", ["shm", "udp"])
@pytest.mark.parametrize("how", ["set_timeout", "call"])
def test_a_longer_timeout_is_honoured(how: str, transport: str) -> None:
    """Ranks wait longer than the group was made to."""
    ranks.run(WORLD, longer, how, environ={"FANIN_TRANSPORT": transport})


def days(rank: int, folder: str, length: timedelta) -> None:
    """A group with a very long timeout."""
    dist.init_process_group("fanin", init_method=f"file://{folder}/{length.days}", rank=rank, world_size=2, timeout=length)
    ones = torch.ones(3)
    dist.all_reduce(ones)
    assert ones.tolist() == [2.0] * 3
    group = dist.new_group(timeout=length / 2)
    dist.set_timeout(length, group)
    dist.barrier(group)


@pytest.mark.parametrize("length", [timedelta(hours=2), timedelta(days=3), timedelta(days=40_000)], ids=str)
def test_timeouts_of_days(tmp_path: object, length: timedelta) -> None:
    """Rank 0's own switch takes them."""
    ranks.run(2, days, f"{tmp_path}", length, backend="")


def too_short(rank: int, folder: str) -> str:
    """No time at all."""
    with pytest.raises(ValueError) as raised:
        dist.init_process_group("fanin", init_method=f"file://{folder}/s", rank=rank, world_size=2, timeout=timedelta(milliseconds=1))
    return str(raised.value)


def test_a_timeout_that_is_none(tmp_path: object) -> None:
    """Is refused."""
    for text in ranks.run(2, too_short, f"{tmp_path}", backend=""):
        assert "timeout = 0.001: expected a time, such as " in text and "of at least 10ms" in text


def forwarded(rank: int) -> str:
    """What gloo does has the group's timeout, and errors like all others."""
    dist.set_timeout(timedelta(seconds=1))
    text = ""
    if rank == 0:
        begin = time.monotonic()
        with pytest.raises(CollectiveError) as raised:
            dist.recv(torch.ones(2)[::2], src=2)
        assert time.monotonic() - begin < 20
        assert isinstance(raised.value, dist.DistBackendError) and raised.value.__cause__ is not None
        assert raised.value.cause == 2
        text = str(raised.value)
    wait_for_all()
    return text


def test_timeouts_of_what_gloo_does() -> None:
    """Names the rank that did not send."""
    assert "recv with rank 2, by gloo, has ended by a timeout" in ranks.run(WORLD, forwarded)[0]


LISTS = {
    "overlapping": {0: [0, 1, 2], 1: [0, 1], 2: [1, 2]},
    "one differs": {0: [0, 1, 2], 1: [0, 1], 2: [0, 1, 2]},
    "two roots": {0: [0, 1], 1: [1, 2], 2: [1, 2]},
}


def different_lists(rank: int, name: str) -> tuple[float, str]:
    """Ranks make a group with different lists."""
    begin = time.monotonic()
    try:
        group = dist.new_group(LISTS[name][rank])
        dist.barrier(group)
    except CollectiveError as error:
        assert isinstance(error, dist.DistBackendError)
        ended = time.monotonic() - begin, str(error)
        wait_for_all()
        return ended
    wait_for_all()
    return 0.0, ""


@pytest.mark.parametrize("name", list(LISTS))
def test_groups_of_different_lists(name: str) -> None:
    """Whoever has a list that is not that of its ranks is told at once, with both lists."""
    outcomes = ranks.run(WORLD, different_lists, name, timeout_s=60.0)
    for rank, (elapsed, text) in enumerate(outcomes):
        if name == "two roots" and rank != 0 and not text:
            # These two agree.
            continue
        assert elapsed < 30, (rank, elapsed, text)
        assert "expected the same list at all ranks" in text, (rank, text)
        assert sum(str(ranks) in text for ranks in LISTS[name].values()) >= 2, text


def lives(rank: int, folder: str) -> None:
    """Groups of the same name with different lists, one after the other, on one store."""
    store = dist.FileStore(f"{folder}/store", WORLD)
    for members in ([0, 1], [1, 2], [0, 1, 2], [0, 2], [0, 1]):
        dist.init_process_group("fanin", store=store, rank=rank, world_size=WORLD, timeout=timedelta(seconds=60))
        group = dist.new_group(members)
        if rank in members:
            ones = torch.ones(1)
            dist.all_reduce(ones, group=group)
            assert ones.item() == len(members)
        dist.barrier()
        dist.destroy_process_group()


def test_a_store_that_has_seen_other_lists(tmp_path: object) -> None:
    """What was said for groups that are over means nothing."""
    ranks.run(WORLD, lives, f"{tmp_path}", backend="")


def no_first(rank: int, folder: str) -> tuple[str, int | None]:
    """Rank 1 never comes; rank 2 waits as well as rank 0."""
    if rank == LATE:
        return "", None
    with pytest.raises(CollectiveTimeoutError) as raised:
        dist.init_process_group("fanin", init_method=f"file://{folder}/s", rank=rank, world_size=WORLD, timeout=timedelta(seconds=2))
    return str(raised.value), raised.value.cause


def test_who_never_comes_is_blamed_by_all(tmp_path: object) -> None:
    """Not rank 0, by those that wait for what it says."""
    outcomes = ranks.run(WORLD, no_first, f"{tmp_path}", backend="")
    for rank in (0, 2):
        assert "waiting for rank 1" in outcomes[rank][0] and outcomes[rank][1] == LATE, outcomes


def lost_store(rank: int, port: int) -> tuple[float, str]:
    """The process with the store is gone while this one waits for it."""
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", port, 2, is_master=True, wait_for_workers=False)
        while store.num_keys() < 5:
            time.sleep(0.05)
        os._exit(0)
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=False, timeout=timedelta(seconds=60))
    begin = time.monotonic()
    with pytest.raises(CollectiveError) as raised:
        dist.init_process_group("fanin", store=store, rank=1, world_size=2, timeout=timedelta(seconds=100))
    assert isinstance(raised.value, dist.DistBackendError) and not isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value.__cause__, RuntimeError)
    return time.monotonic() - begin, str(raised.value)


def test_a_store_that_is_gone() -> None:
    """Is not a rank that has not come."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    elapsed, text = ranks.outcomes(2, lost_store, port, backend="")[1].value
    assert "its store has failed" in text and "has not" not in text.split("after rank 1")[0], text
    assert elapsed < 60
