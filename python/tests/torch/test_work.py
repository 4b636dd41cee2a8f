"""Work that is not waited for at once: futures, callbacks, coalescing, profiles, debug mode."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import ranks
import torch
import torch.distributed as dist

from fanin.torch import profiles

WORLD = 2
#: Ranks of a run that is profiled: more than a pair.
TRACED = 3


def in_order(rank: int) -> None:
    """Many calls under way, waited for in another order."""
    tensors = [torch.full((1_000,), float(rank + index)) for index in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.barrier()
    for work in reversed(works):
        assert work.wait()
        assert work.wait(timedelta(seconds=5))
    for index, tensor in enumerate(tensors):
        assert tensor.eq(2 * index + 1).all()


def test_many_calls_under_way() -> None:
    """They end in order, and a call that is waited for comes after them."""
    ranks.run(WORLD, in_order)


def futures(rank: int) -> None:
    """Values, ``then``, and callbacks that call again and wait for that."""
    tensor = torch.full((4,), rank + 1.0)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.wait()[0] is tensor or torch.equal(future.wait()[0], tensor)
    assert future.done() and tensor.tolist() == [3.0] * 4
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    assert doubled.wait().tolist() == [12.0] * 4

    def again(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        inner = dist.all_reduce(done.value()[0].clone(), async_op=True)
        later: torch.Tensor = inner.get_future().wait()[0]
        dist.all_reduce(later)
        return later

    chained = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again)
    assert chained.wait().tolist() == [8.0] * 4
    lists = [[torch.zeros(2) for _ in range(WORLD)]]
    got = dist.all_gather(lists[0], torch.full((2,), float(rank)), async_op=True).get_future().wait()
    assert [part.tolist() for part in got[0]] == [[0.0, 0.0], [1.0, 1.0]]
    assert dist.barrier(async_op=True).get_future().wait() is None


def test_futures() -> None:
    """A callback may use the same group."""
    ranks.run(WORLD, futures)


def from_threads(rank: int) -> None:
    """One group a thread."""
    groups = [dist.new_group() for _ in range(3)]
    sums = [0.0] * 3

    def use(index: int) -> None:
        tensor = torch.full((100,), float(index + rank))
        for _ in range(20):
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=groups[index])
        sums[index] = tensor[0].item()

    threads = [threading.Thread(target=use, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [index + 0.5 for index in range(3)]


def test_groups_in_threads() -> None:
    """They do not wait for each other."""
    ranks.run(WORLD, from_threads)


def own_work(rank: int) -> None:
    """What the backend itself returns says more than what PyTorch makes of it."""
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    options = dist.AllreduceOptions()
    work = backend.allreduce([torch.ones(3)], options)
    assert work.wait() and work.is_completed() and work.is_success()
    assert work.exception() is None
    assert work.result()[0].tolist() == [2.0] * 3
    assert backend.get_error() == type(backend.get_error()).SUCCESS
    assert backend._get_backend_name() == "fanin"


def test_what_work_knows() -> None:
    """Whether it has ended, how, and with what."""
    ranks.run(WORLD, own_work)


def coalesced(rank: int) -> None:
    """Several calls in one."""
    tensors = [torch.full((3,), float(rank + index)) for index in range(4)]
    dist.all_reduce_coalesced(tensors)
    assert [tensor[0].item() for tensor in tensors] == [1.0, 3.0, 5.0, 7.0]
    with dist._coalescing_manager(device=torch.device("cpu")):
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert [tensor[0].item() for tensor in tensors] == [2.0, 6.0, 10.0, 14.0]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert [tensor[0].item() for tensor in tensors] == [4.0, 12.0, 20.0, 28.0]
    wholes = [torch.zeros(2 * length) for length in (1, 2)]
    with dist._coalescing_manager(device=torch.device("cpu")):
        for whole in wholes:
            dist.all_gather_into_tensor(whole, torch.full((whole.numel() // 2,), float(rank)))
    assert [whole.tolist() for whole in wholes] == [[0.0, 1.0], [0.0, 0.0, 1.0, 1.0]]
    parts = [torch.zeros(1), torch.zeros(2)]
    with dist._coalescing_manager(device=torch.device("cpu")):
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.arange(2.0 * part.numel()))
    assert [part.tolist() for part in parts] == [[2.0 * rank], [4.0 * rank, 4.0 * rank + 2]]


def test_coalesced_calls() -> None:
    """All forms that PyTorch has."""
    ranks.run(WORLD, coalesced)


def profiled(rank: int) -> list[str]:
    """Names of events."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(3))
        dist.broadcast(torch.ones(3), src=0, async_op=True).wait()
        dist.barrier()
    return [event.name for event in profile.events() if event.name.startswith("fanin:")]


def test_profiles_show_collectives() -> None:
    """By the backend's name: as an event that says what begins, and as a span."""
    for names in ranks.run(WORLD, profiled):
        assert sorted(names) == sorted(["fanin:all_reduce", "fanin:barrier", "fanin:broadcast"] * 2)


def traced(rank: int, folder: str) -> None:
    """Writes what the profiler has of a few collectives of all kinds, of two groups and several types, in both forms that there are."""
    pair = dist.new_group([0, 1])
    observer = torch.profiler.ExecutionTraceObserver().register_callback(f"{folder}/et{rank}.json")
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
    ) as profile:
        dist.all_reduce(torch.ones(1_000))
        dist.all_reduce(torch.ones(10, dtype=torch.int64), async_op=True).wait()
        dist.broadcast(torch.ones(7, dtype=torch.bfloat16), src=1)
        dist.reduce(torch.ones(4), dst=1)
        dist.all_gather_into_tensor(torch.empty(5 * TRACED), torch.ones(5))
        dist.reduce_scatter_tensor(torch.empty(6, dtype=torch.float16), torch.ones(6 * TRACED, dtype=torch.float16))
        dist.barrier()
        if rank < 2:
            dist.all_reduce(torch.ones(3), group=pair)
    profile.export_chrome_trace(f"{folder}/{rank}.json")


def test_profiles_say_what_pytorchs_own_say_and_can_be_imported(tmp_path: Path) -> None:
    """A profile of a run gives its own collectives: to whoever reads PyTorch's words, and to ``fanin import``."""
    ranks.run(TRACED, traced, str(tmp_path))
    for rank in range(TRACED):
        events = json.loads((tmp_path / f"{rank}.json").read_text())["traceEvents"]
        said = [event["args"] for event in events if "Collective name" in event.get("args", {})]
        found = [(one["Collective name"], one["dtype"], one["In msg nelems"], one["Out msg nelems"], one["Group size"]) for one in said]
        expected = [
            ("allreduce", "Float", 1_000, 1_000, TRACED),
            ("allreduce", "Long", 10, 10, TRACED),
            ("broadcast", "BFloat16", 7, 7, TRACED),
            ("reduce", "Float", 4, 4, TRACED),
            ("_allgather_base", "Float", 5, 5 * TRACED, TRACED),
            ("_reduce_scatter_base", "Half", 6 * TRACED, 6, TRACED),
            ("barrier", "Byte", 0, 0, TRACED),
        ]
        assert found == expected + [("allreduce", "Float", 3, 3, 2)] * (rank < 2)
        assert json.loads(said[0]["Process Group Ranks"]) == list(range(TRACED)) and (said[2]["Rank"], said[3]["Rank"]) == (1, 1)
        assert rank >= 2 or (
            json.loads(said[-1]["Process Group Ranks"]) == [0, 1] and said[-1]["Process Group Name"] != said[0]["Process Group Name"]
        )
        other = tmp_path / f"as{rank}.json"
        assert profiles.as_pytorch(tmp_path / f"{rank}.json", other) == len(found)
        renamed = [event for event in json.loads(other.read_text())["traceEvents"] if event.get("name") == "record_param_comms"]
        assert [event["args"] for event in renamed] == said
        assert profiles.as_pytorch(tmp_path / f"et{rank}.json", other) >= len(found)
    program = shutil.which("fanin")
    assert program is not None, "the program `fanin` is not on PATH"
    files = [str(tmp_path / f"{rank}.json") for rank in range(TRACED)]
    done = subprocess.run([program, "import", *files, "--summary"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in (
        r"all-reduce +\S+ +f32 +1 +1 +1 +4000 ",
        r"all-reduce +\S+ +i64 +1 +1 +1 +80 ",
        r"broadcast +\S+ +bf16 +1 +1 +1 +14 ",
        r"all-reduce +\S+ +f32 .* 12 ",
    ):
        assert re.search(words, done.stdout), f"{words}: {done.stdout}"
    for words in (r"all-gather .* f32 ", r"reduce-scatter .* f16 ", r"reduce +\S+ +f32"):
        assert re.search(words, done.stdout), f"{words}: {done.stdout}"


def debugged(rank: int) -> None:
    """``TORCH_DISTRIBUTED_DEBUG=DETAIL`` checks collectives before they are made."""
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 3
    group = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True).wait()
    gathered = torch.zeros(6)
    dist.all_gather_into_tensor(gathered, tensor)
    assert gathered.tolist() == [3.0] * 6
    with pytest.raises(RuntimeError, match="mismatch"):
        dist.all_reduce(torch.ones(3 + rank))


def test_debug_mode() -> None:
    """The backend's methods are still there behind PyTorch's wrapper."""
    ranks.run(WORLD, debugged, environ={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def forwarded(rank: int) -> None:
    """What gloo does."""
    if rank == 0:
        dist.send(torch.full((3,), 5.0), dst=1)
        dist.isend(torch.ones(1), dst=1, tag=7).wait()
    elif rank == 1:
        got = torch.zeros(3)
        dist.recv(got, src=0)
        assert got.tolist() == [5.0] * 3
        dist.irecv(got[:1], src=0, tag=7).wait()
        assert got.tolist() == [1.0, 5.0, 5.0]
    dist.barrier()
    gathered = [torch.zeros(2) for _ in range(3)] if rank == 2 else None
    dist.gather(torch.full((2,), float(rank)), gathered, dst=2)
    if gathered is not None:
        assert [part[0].item() for part in gathered] == [0.0, 1.0, 2.0]
    part = torch.zeros(2)
    dist.scatter(part, [torch.full((2,), float(each)) for each in range(3)] if rank == 0 else None, src=0)
    assert part.tolist() == [float(rank)] * 2
    swapped = torch.zeros(3)
    dist.all_to_all_single(swapped, torch.full((3,), float(rank)))
    assert swapped.tolist() == [0.0, 1.0, 2.0]
    outputs = [torch.zeros(1) for _ in range(3)]
    dist.all_to_all(outputs, [torch.full((1,), float(rank)) for _ in range(3)])
    assert torch.cat(outputs).tolist() == [0.0, 1.0, 2.0]
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (3,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1.0] * 3
    objects: list[object] = [None] * 3
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(3)]


def test_what_is_left_to_gloo() -> None:
    """Two ranks exchange messages while the third does something else."""
    ranks.run(3, forwarded)


def told_once(rank: int) -> None:
    """Log lines."""
    import logging

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("fanin.torch").addHandler(handler)
    for _ in range(3):
        outputs = [torch.zeros(1) for _ in range(WORLD)]
        dist.all_to_all(outputs, [torch.ones(1)] * WORLD)
    expected = ["alltoall goes through gloo: a switch has nothing to sum there"] if rank == 0 else []
    assert lines == expected


def test_a_fallback_is_told_once() -> None:
    """With its reason, by rank 0."""
    ranks.run(WORLD, told_once)
