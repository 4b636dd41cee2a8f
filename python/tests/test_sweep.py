"""`fanin.sweep`: the same bytes whatever computes the runs, and whatever happens to it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import polars
import pytest

import fanin
from fanin import executor
from fanin.program import find_program

ROOT = Path(__file__).resolve().parents[2]

PLAN = """
[network]
shape = "fat-tree"
leaves = 2
hosts_per_leaf = 4
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "tree"
workers = 4
message = "16KiB"

[faults]
links = [{ loss = 0.01 }]

[sweep]
"jobs.0.message" = ["4KiB", "16KiB"]
"jobs.0.trees" = [1, 2]

[run]
repetitions = 3
memory_interval = "5us"
series_interval = "2us"
"""
RUNS = 12


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a sweep."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def swept(folder: Path, plan: Any = PLAN, **settings: Any) -> dict[str, bytes]:
    done = fanin.sweep(plan, folder, progress=False, **settings)
    assert done.ok, (done.failed, done.problems)
    return contents(folder)


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process gives."""
    return swept(tmp_path_factory.mktemp("serial") / "sweep", executor=1)


class InThread(futures.ThreadPoolExecutor):
    """Computes here; some parts fail, or so it seems."""

    def __init__(self, fails: dict[int, int]) -> None:
        super().__init__(2)
        self.fails = fails
        self.tried: list[tuple[int, int]] = []

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> futures.Future[Any]:
        _, _, first, count = arguments
        self.tried.append((first, count))
        for run in range(first, first + count):
            if self.fails.get(run, 0) > 0:
                self.fails[run] -= 1
                failed: futures.Future[Any] = futures.Future()
                failed.set_exception(executor.PartError("a worker", f"no memory for run {run}"))
                return failed
        return super().submit(function, *arguments, **keywords)


def test_tables_are_those_of_simulate(tmp_path: Path, serial: dict[str, bytes]) -> None:
    assert swept(tmp_path / "sweep", executor=2) == serial
    done = fanin.Sweep(tmp_path / "sweep")
    assert done.runs == RUNS and done.tables == ["jobs", "links", "memory", "runs", "series", "workers"]
    here = fanin.simulate(PLAN, threads=1)
    runs = polars.DataFrame(done.table())
    for column in here.runs.column_names:
        if column not in ("wall_s", "begun_anew"):
            assert runs[column].to_list() == here.runs[column], column
    assert "wall_s" not in runs.columns and runs["run"].to_list() == list(range(RUNS))
    for table in ("jobs", "workers", "links", "memory", "series"):
        native = getattr(here, table)
        kept = polars.DataFrame(done.table(table))
        assert kept.height == len(native), table
        for column in native.column_names:
            assert kept[column].to_list() == native[column], (table, column)
    # Any reader of Parquet takes the parts as one table.
    assert polars.read_parquet(tmp_path / "sweep" / "runs" / "*.parquet").equals(runs)


def test_what_is_varied_may_be_given(tmp_path: Path) -> None:
    over = {"jobs.0.message": ["1KiB"], "jobs.0.window": [8, 16]}
    changes = {"run.repetitions": 1, "jobs.0.trees": 1}
    done = fanin.sweep(PLAN, tmp_path / "sweep", over=over, changes=changes, seed=5, executor=1, progress=False)
    runs = polars.DataFrame(done.table())
    assert list(zip(runs["message_bytes"], runs["params.jobs.0.window"], runs["seed"], strict=True)) == [(1024, 8, 5), (1024, 16, 5)]


def test_an_interrupted_sweep_goes_on(tmp_path: Path, serial: dict[str, bytes]) -> None:
    folder = tmp_path / "sweep"

    def interrupt(ended: int, total: int) -> None:
        assert total == RUNS
        if ended >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fanin.sweep(PLAN, folder, executor=InThread({}), progress=interrupt)
    there = {name for name in contents(folder) if name.startswith("runs/")}
    assert 4 <= len(there) < RUNS
    # What a process was writing when it died is not taken for a part.
    (folder / "runs" / "part-000011.new").write_bytes(b"PAR1")
    told: list[int] = []
    rest = InThread({})
    done = fanin.sweep(PLAN, folder, executor=rest, progress=lambda ended, total: told.append(ended))
    assert done.ok and len(rest.tried) == RUNS - len(there) and told[0] == len(there) and told[-1] == RUNS
    assert contents(folder) == serial
    # All is there: nothing is run again.
    nothing = InThread({})
    fanin.sweep(PLAN, folder, executor=nothing, progress=False)
    assert nothing.tried == []


def test_a_run_that_fails_is_tried_again_and_then_reported(tmp_path: Path, serial: dict[str, bytes]) -> None:
    folder = tmp_path / "sweep"
    twice = InThread({3: 2, 7: 1})
    assert swept(folder, executor=twice) == serial
    assert twice.tried.count((3, 1)) == 3 and twice.tried.count((7, 1)) == 2
    folder = tmp_path / "other"
    done = fanin.sweep(PLAN, folder, executor=InThread({3: 3}), progress=False)
    assert not done.ok and [failed["run"] for failed in done.failed] == [3]
    assert done.failed[0]["where"] == "jobs.0.message 4KiB, jobs.0.trees 2, seed 1"
    assert done.failed[0]["errors"] == ["a worker: no memory for run 3"] * 3
    assert sorted(done.table()["run"].to_pylist()) == [run for run in range(RUNS) if run != 3]
    # The next call tries it again, and nothing else.
    again = InThread({})
    assert swept(folder, executor=again) == serial and again.tried == [(3, 1)]
    with pytest.raises(fanin.ExecutorError, match="run 3: a worker: no memory for run 3; a worker"):
        fanin.simulate(PLAN, executor=InThread({3: 3}))


def test_a_part_that_fails_is_divided() -> None:
    pool = InThread({5: 1})
    native = fanin._native.sweep(PLAN, is_text=True)
    done = list(executor.compute(executor.connect(pool), "plan", native.bundle, iter([(0, 4), (4, 4), (8, 4)])))
    lengths = sorted((part[0], part[1]) for part in done if not isinstance(part, executor.FailedRun))
    assert lengths == [(0, 4), (4, 1), (5, 1), (6, 1), (7, 1), (8, 4)]


def test_a_process_that_dies_is_replaced(tmp_path: Path, serial: dict[str, bytes]) -> None:
    killed: list[int] = []

    def kill(ended: int, total: int) -> None:
        if ended >= 3 and not killed:
            child = multiprocessing.active_children()[0]
            child.kill()
            killed.append(child.pid or 0)

    done = fanin.sweep(PLAN, tmp_path / "sweep", executor=2, progress=kill)
    assert killed and done.ok and contents(tmp_path / "sweep") == serial


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    swept(folder, changes={"run.repetitions": 1}, executor=1)
    before = contents(folder)
    with pytest.raises(fanin.PlanError, match="it holds another sweep \\(another runs, plan\\)"):
        fanin.sweep(PLAN, folder, executor=1, progress=False)
    assert contents(folder) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("...")
    with pytest.raises(fanin.PlanError, match="expected a new folder"):
        fanin.sweep(PLAN, tmp_path / "mine", executor=1, progress=False)
    with pytest.raises(fanin.PlanError, match="expected the folder of a sweep"):
        fanin.Sweep(tmp_path / "mine")
    with pytest.raises(fanin.PlanError, match="run.repetitions"):
        fanin.sweep(PLAN, tmp_path / "none", changes={"run.repetitions": 0}, executor=1, progress=False)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("wrong", ["localhost:8786", "tcp:8786", 0, True, 1.5, "raylet"])
def test_what_is_no_executor_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="executor = .*: expected"):
        executor.connect(wrong)


def test_simulate_and_repro_take_executors() -> None:
    here, there = fanin.simulate(PLAN), fanin.simulate(PLAN, executor=2)
    assert [line.rsplit(",", 1)[0] for line in here.csv.splitlines()] == [line.rsplit(",", 1)[0] for line in there.csv.splitlines()]
    assert dict(here.plot()) == dict(there.plot())
    quick: dict[str, Any] = {"quick": True, "changes": {"run.repetitions": 1}}
    assert fanin.repro("canary", "fig06", executor=2, **quick).claims == fanin.repro("canary", "fig06", **quick).claims


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "FANIN_PYTHON": sys.executable, **environment}
    return subprocess.run([find_program(), *arguments], capture_output=True, text=True, env=environ, check=False)


def test_the_program_takes_executors(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)

    def rows(*arguments: str) -> list[dict[str, Any]]:
        done = program("sim", str(file), "--format", "json", *arguments)
        assert done.returncode == 0, done.stderr
        return [{key: value for key, value in run.items() if key != "wall_s"} for run in json.loads(done.stdout)]

    assert rows("--executor", "2") == rows()
    campaign = ("check", "tree", "--first", "900", "--seeds", "12", "--once")
    here, there = program(*campaign), program(*campaign, "--executor", "2")
    assert here.returncode == 0 and here.stdout == there.stdout
    lost = program("sim", str(file), "--executor", "tcp://127.0.0.1:9", FANIN_PYTHON="/nowhere/python3")
    assert lost.returncode == 1 and "expected a Python with Fanin's package, by FANIN_PYTHON" in lost.stderr
    wrong = program("sim", str(file), "--executor", "somewhere")
    assert wrong.returncode == 1 and "executor = 'somewhere': expected a number of processes" in wrong.stderr


@contextlib.contextmanager
def dask(folder: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler of Dask and its workers, in a folder of their own; the last process is the scheduler's."""
    where = folder / "scheduler.json"
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    own = ["--scheduler-file", str(where), "--no-dashboard"]
    started = [
        subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1", *own], **quiet)
    ]
    try:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *own]
        started += [subprocess.Popen(command, **quiet) for _ in range(workers)]
        limit = time.monotonic() + 60
        while not where.exists():
            assert time.monotonic() < limit, "the scheduler has not started"
            time.sleep(0.05)
        yield json.loads(where.read_text())["address"], [*started[1:], started[0]]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same_bytes_when_a_worker_dies(tmp_path: Path, serial: dict[str, bytes]) -> None:
    (tmp_path / "dask").mkdir()
    with dask(tmp_path / "dask", 3) as (address, workers):
        import distributed

        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(3, timeout=60)
            killed: list[int] = []

            def kill(ended: int, total: int) -> None:
                if ended >= 2 and not killed:
                    workers[0].kill()
                    killed.append(ended)

            done = fanin.sweep(PLAN, tmp_path / "sweep", executor=client, progress=kill)
            assert killed and done.ok and contents(tmp_path / "sweep") == serial
            assert len(client.nthreads()) == 2
        # By its address; files that the plan names go along with it.
        shared = ROOT / "examples" / "networks" / "racks.toml"
        (tmp_path / "racks.toml").write_text(shared.read_text())
        text = PLAN.split("[faults]")[0].replace(
            'shape = "fat-tree"\nleaves = 2\nhosts_per_leaf = 4\nspines = 2', 'shape = "file"\nfile = "racks.toml"'
        )
        (tmp_path / "plan.toml").write_text(text.replace('rate = "100Gb/s"\nlatency = "300ns"\n', ""))
        here = swept(tmp_path / "here", plan=tmp_path / "plan.toml", executor=1)
        assert swept(tmp_path / "there", plan=tmp_path / "plan.toml", executor=address) == here
        done = program("check", "ring", "--first", "900", "--seeds", "6", "--once", "--executor", address)
        assert done.returncode == 0 and done.stdout.startswith("6 runs")


def test_dask_without_anybody_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "PATIENCE_S", 2.0)
    monkeypatch.setattr(executor, "LOOK_S", 0.5)
    with pytest.raises(fanin.ExecutorError, match="no Dask scheduler there"):
        executor.connect("tcp://127.0.0.1:9")
    with dask(tmp_path, 0) as (address, _), pytest.raises(fanin.ExecutorError, match="it has had no worker for 2 s"):
        fanin.sweep(PLAN, tmp_path / "sweep", executor=address, progress=False)


@pytest.mark.filterwarnings("ignore")
def test_dask_without_its_scheduler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "PATIENCE_S", 4.0)
    monkeypatch.setattr(executor, "LOOK_S", 0.5)
    with dask(tmp_path, 1) as (address, processes), pytest.raises(fanin.ExecutorError, match="^executor: "):
        fanin.sweep(PLAN, tmp_path / "sweep", executor=address, progress=lambda ended, total: processes[-1].kill() if ended == 3 else None)


@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_bytes(tmp_path: Path, serial: dict[str, bytes]) -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        assert swept(tmp_path / "sweep", executor="ray") == serial
        with pytest.raises(fanin.ExecutorError, match="run 0: .*ValueError: a bundle of runs: not readable"):
            list(executor.elsewhere(executor.connect("ray"))(b"", 1))
    finally:
        ray.shutdown()
