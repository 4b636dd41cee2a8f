"""Groups: their names, sizes and number, and what is left when they are gone."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import ranks
import torch
import torch.distributed as dist

WORLD = 3


def total(group: dist.ProcessGroup | None = None) -> float:
    """The number of ranks, by an allreduce."""
    ones = torch.ones(1)
    dist.all_reduce(ones, group=group)
    return ones.item()


def test_names(tmp_path: Path) -> None:
    """A program that imports nothing of Fanin's finds the backend by its entry point."""
    text = f"""
import sys, torch, torch.distributed as dist
for turn, name in enumerate(["fanin", "FANIN", "cpu:fanin", "cpu:fanin,cuda:gloo", "cpu:gloo,cuda:fanin"]):
    dist.init_process_group(name, init_method=f"file://{tmp_path}/{{turn}}", rank=int(sys.argv[1]), world_size=2)
    ones = torch.ones(4)
    dist.all_reduce(ones)
    assert ones.tolist() == [2.0] * 4
    assert "fanin.torch" in sys.modules
    dist.destroy_process_group()
"""
    processes = [subprocess.Popen([sys.executable, "-c", text, str(rank)]) for rank in range(2)]
    assert [process.wait(ranks.PATIENCE_S) for process in processes] == [0, 0]


def many(rank: int) -> None:
    """Groups of all sizes, several at a time, some of them the same ranks."""
    groups = [(members, dist.new_group(members)) for members in ([0], [1], [2], [0, 1], [1, 2], [2, 0], [0, 1, 2], [1, 2])]
    for _ in range(3):
        for members, group in groups:
            if rank in members:
                assert total(group) == len(members)
    assert total() == WORLD
    mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1]])
    assert total(mine) == (1 if rank == 1 else 2)
    for members, group in groups[:4]:
        if rank in members:
            dist.destroy_process_group(group)
    assert total(groups[6][1]) == WORLD
    for index in range(20):
        group = dist.new_group([index % WORLD, (index + 1) % WORLD])
        if rank in (index % WORLD, (index + 1) % WORLD):
            assert total(group) == 2


def test_many_groups() -> None:
    """Also of one rank, also over the same ranks twice."""
    ranks.run(WORLD, many)


def a_hundred_and_fifty(rank: int, how: str) -> int:
    """Groups at once, or one after the other without being destroyed; in a process that may open few files at first."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, most), most))
    groups = []
    for number in range(150):
        groups.append(dist.new_group([0, 1] if number % 3 else [0]))
        if how == "used at once" and (rank == 0 or number % 3):
            assert total(groups[-1]) == (2 if number % 3 else 1)
    for number, group in enumerate(groups):
        if rank == 0 or number % 3:
            assert total(group) == (2 if number % 3 else 1)
    return len(groups)


@pytest.mark.parametrize(("transport", "how"), [("shm", "used later"), ("udp", "used at once")])
def test_more_groups_than_a_switch_takes_jobs_by_itself(transport: str, how: str) -> None:
    """How many there are is bounded by memory."""
    assert ranks.run(2, a_hundred_and_fifty, how, environ={"FANIN_TRANSPORT": transport}) == [150, 150]


def split(rank: int) -> None:
    """``split_group``."""
    group = dist.split_group(split_ranks=[[0, 2], [1]])
    assert total(group) == (1 if rank == 1 else 2)
    assert total() == WORLD


@pytest.mark.skipif(not ranks.SPLITS, reason="before 2.15, PyTorch splits groups of GPUs only")
def test_split_group() -> None:
    """A group is divided."""
    ranks.run(WORLD, split)


def resources() -> tuple[int, int]:
    """Threads and open files of this process, without threads for futures.

    Those live as long as the process, and one is made where a future is not done at once and all others are busy: in any turn.
    """
    futures = sum(thread.name.startswith("fanin-futures") for thread in threading.enumerate())
    assert futures <= 3, f"{futures} threads for one future at a time"
    return len(os.listdir("/proc/self/task")) - futures, len(os.listdir("/proc/self/fd"))


def again(rank: int, folder: str) -> None:
    """A group is made, used and destroyed, over and over."""
    seen = []
    for turn in range(21):
        dist.init_process_group("fanin", init_method=f"file://{folder}/{turn}", rank=rank, world_size=WORLD, timeout=timedelta(seconds=60))
        assert total() == WORLD
        dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
        other = dist.new_group([0, 1])
        if rank < 2:
            assert total(other) == 2
        dist.destroy_process_group()
        while any(thread.name == "fanin-drain" for thread in threading.enumerate()):
            time.sleep(0.01)
        seen.append(resources())
    # What the first turn leaves is there once and for all.
    assert seen[-1] == seen[1], f"threads and files after each turn: {seen}"


def test_destroyed_and_made_again(tmp_path: Path) -> None:
    """Twenty times, without a thread or a file left over."""
    ranks.run(WORLD, again, str(tmp_path), backend="")


def same_store(rank: int, folder: str) -> None:
    """Groups of the same name, one after the other, on one store."""
    store = dist.FileStore(f"{folder}/store", WORLD)
    for turn in range(3):
        dist.init_process_group("fanin", store=store, rank=rank, world_size=WORLD)
        tensor = torch.full((2,), float(turn))
        dist.all_reduce(tensor)
        assert tensor.tolist() == [3.0 * turn] * 2
        dist.destroy_process_group()


def test_one_store_for_several_lives(tmp_path: Path) -> None:
    """No rank takes a former switch's address for the present one."""
    ranks.run(WORLD, same_store, str(tmp_path), backend="")


def left_open(rank: int) -> None:
    """The process ends without ``destroy_process_group``."""
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    dist.distributed_c10d.destroy_process_group = lambda: None  # type: ignore[assignment]


def test_a_program_that_ends_without_destroying_its_groups() -> None:
    """It ends well, and quietly."""
    ranks.run(WORLD, left_open)


def over_switch(rank: int) -> str:
    """At a switch in another process."""
    assert total() == WORLD
    group = dist.new_group([1, 2])
    if rank:
        assert total(group) == 2
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert isinstance(backend._comm.path, str)
    transport: str = backend._comm.transport
    return transport


def test_switch_in_another_process(switch: str) -> None:
    """``FANIN_SWITCH`` says where, for all groups."""
    environ = {"FANIN_SWITCH": switch, "FANIN_TRANSPORT": "udp"}
    assert ranks.run(WORLD, over_switch, environ=environ) == ["udp"] * WORLD
