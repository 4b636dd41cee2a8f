"""`fanin.simulate`: the same code as `fanin sim`, with plans and results as Python has them."""

from __future__ import annotations

import csv
import io
import re
import signal
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import fanin
from fanin import plans
from fanin.program import find_program

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parents[2]

PLAN = plans.Plan(
    network=plans.Network(shape="fat-tree", leaves=2, hosts_per_leaf=4, spines=2, rate="100Gb/s", latency="300ns"),
    jobs=[plans.Job(system="tree", workers=4, message="64KiB")],
    traffic=[plans.Traffic(pattern="uniform", message="8KiB", load=0.5)],
    faults=plans.Faults(links=[plans.LinkFaults(links="fabric", loss=0.01)]),
    series=[
        plans.Series(name="ring", set={"jobs.0.system": "ring"}),
        plans.Series(name="2 trees", set={"jobs.0.system": "tree", "jobs.0.trees": 2}),
    ],
    sweep={"jobs.0.message": ["16KiB", "64KiB"]},
    flows=[plans.Flow({"from": plans.Member(rank=0), "to": plans.Member(rank=1), "rate": "10Gb/s"})],
    limits=[plans.Limit(hosts="workers", send="20Mp/s", receive="20Mp/s")],
    run=plans.Run(seed=7, repetitions=2, memory_interval="5us", series_interval="2us"),
)


def without_wall_time(text: str) -> list[str]:
    """The only column that differs from run to run is the last one."""
    return [line.rsplit(",", 1)[0] for line in text.splitlines()]


@pytest.fixture(scope="module")
def results() -> fanin.Results:
    return fanin.simulate(PLAN)


def test_the_same_plan_and_seed_give_the_programs_bytes(results: fanin.Results, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(results.plan)
    out = tmp_path / "out"
    subprocess.run([find_program(), "sim", str(file), "--out", str(out), "--threads", "1"], check=True, stdout=subprocess.PIPE)
    assert without_wall_time(results.csv) == without_wall_time((out / "results.csv").read_text())
    # Columns hold what the files hold.
    links = list(csv.DictReader(io.StringIO((out / "links.csv").read_text())))
    assert [row["to"] for row in links] == results.links["to"]
    assert [int(row["bytes"]) for row in links] == results.links["bytes"]
    memory = list(csv.DictReader(io.StringIO((out / "memory.csv").read_text())))
    assert [float(row["time_us"]) for row in memory] == results.memory["time_us"]
    series = list(csv.DictReader(io.StringIO((out / "series.csv").read_text())))
    assert list(series[0]) == results.series.column_names
    assert [float(row["goodput_gbps"]) for row in series] == results.series["goodput_gbps"]
    assert sum(results.series["goodput_gbps"]) > 0
    again = fanin.simulate(file, threads=1)
    assert without_wall_time(again.csv) == without_wall_time(results.csv)
    assert without_wall_time(fanin.simulate(file.read_text()).csv) == without_wall_time(results.csv)
    assert without_wall_time(fanin.simulate(str(file)).csv) == without_wall_time(results.csv)


def test_tables_are_read_by_polars_pandas_and_pyarrow(results: fanin.Results) -> None:
    header = results.csv.splitlines()[0].split(",")
    for table in (results.runs, results.jobs, results.workers, results.links, results.memory, results.series):
        assert len(table) > 0
        arrow = pyarrow.table(table)
        assert arrow.column_names == table.column_names
        assert arrow.num_rows == len(table)
        assert polars.DataFrame(table).rows(named=True) == arrow.to_pylist() == list(table.rows())
    frame = polars.DataFrame(results.runs)
    assert frame.columns == header
    assert frame.schema["goodput_gbps"] == polars.Float64
    assert frame.schema["packet_hops"] == polars.UInt64
    assert frame["failure"].null_count() == len(frame) == 8
    assert frame["series"].unique(maintain_order=True).to_list() == ["ring", "2 trees"]
    rows = list(csv.DictReader(io.StringIO(results.csv)))
    assert [float(row["goodput_gbps"]) for row in rows] == results.runs["goodput_gbps"]
    table = pyarrow.table(results.runs).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert table["seed"].tolist() == [7, 8] * 4
    assert results.workers["rank"][:4] == [0, 1, 2, 3]
    assert results.ok
    assert repr(results) == "<fanin.Results of 8 runs, all as expected>"
    assert results.to_dicts()[0]["jobs"][0]["operations"] == 1
    with pytest.raises(KeyError, match="no column"):
        results.runs["nothing"]


def test_changes_seed_and_progress() -> None:
    seen: list[tuple[int, int]] = []
    results = fanin.simulate(
        {**PLAN, "sweep": None},
        changes={"jobs.0.message": "4KiB", "run.repetitions": np.int64(3), "traffic.0.enabled": False, "flows.0.enabled": False},
        seed=100,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert results.runs["seed"] == [100, 101, 102] * 2
    assert set(results.runs["message_bytes"]) == {4096}
    assert set(results.runs["congested"]) == {False}
    assert seen[-1] == (6, 6)
    assert "# --set run.repetitions=3" in results.plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": {"shape": "star", "rate": "1Gb/s", "latency": "1us"}}, "network.hosts"),
        ({"jobs": [{"system": "tree", "message": "many"}]}, r'jobs\[0\].message = "many"'),
        ({"jobs": [{"system": "tree", "message": "1KiB", "wrkers": 3}]}, r"jobs\[0\].wrkers = 3: unknown key; did you mean workers"),
        ({"jobs": [{"system": "tree", "message": object()}]}, r"jobs\[0\].message = <object .*expected a number, a text"),
        ({"jobs": [{"system": "tree", "message": 2**70}]}, r"jobs\[0\].message = .*expected a whole number of 64 bits"),
        ({"jobs": {"system": "tree"}}, "jobs = .*expected a list of tables"),
        ({"nonsense": 1}, "nonsense = 1: unknown key"),
    ],
)
def test_wrong_plans_are_refused_with_key_and_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(fanin.PlanError, match=message) as raised:
        fanin.simulate({**PLAN, "series": None, "sweep": None, **change})
    assert isinstance(raised.value, ValueError)
    assert ":0:" not in str(raised.value)


def test_files_and_arguments_that_are_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(fanin.PlanError, match="nowhere.toml: cannot be read"):
        fanin.simulate(tmp_path / "nowhere.toml")
    with pytest.raises(fanin.PlanError, match="plan:1: not TOML"):
        fanin.simulate("=\n")
    with pytest.raises(ValueError, match="threads = 0"):
        fanin.simulate(PLAN, threads=0)
    with pytest.raises(fanin.PlanError, match="seed = -1"):
        fanin.simulate(PLAN, seed=-1)
    with pytest.raises(fanin.PlanError, match="--set jobs.0.message=3.5"):
        fanin.simulate(PLAN, changes={"jobs.0.message": 3.5})


def test_a_run_that_fails_is_a_result_and_no_exception() -> None:
    results = fanin.simulate(ROOT / "examples" / "failure.toml", changes={"run.expect": "success", "run.repetitions": 1})
    assert not results.ok
    assert any(results.runs["failure"])


class StopError(Exception):
    pass


def test_an_exception_of_progress_stops_the_simulation() -> None:
    def stop(done: int, total: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        fanin.simulate(PLAN, progress=stop)


LONG = """
import fanin, sys
plan = {"network": {"shape": "star", "hosts": 16, "rate": "100Gb/s", "latency": "300ns"},
        "jobs": [{"system": "ring", "workers": 16, "message": "1MiB"}], "run": {"repetitions": 3_000}}
try:
    fanin.simulate(plan, threads=1, progress=lambda done, total: print(done, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_simulation() -> None:
    process = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    # It has begun.
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.stdout.read().splitlines()
    assert process.wait() == 0
    process.stdout.close()


def keys(kind: Any) -> set[str]:
    return set(typing.get_type_hints(kind))


def known_keys(plan: dict[str, Any], section: str) -> set[str]:
    """The keys that the program knows, by its own words about one that it does not."""
    with pytest.raises(fanin.PlanError) as raised:
        fanin.simulate(plan)
    text = str(raised.value)
    assert f"{section}zzzzzzzzzz" in text, text
    found = re.search(r"expected (?:one of )?(.*?)(?: \(in .*)?$", text)
    assert found is not None, text
    return {name.strip("`") for name in found.group(1).split(", ")}


UNKNOWN = {"zzzzzzzzzz": 1}
NETWORK = {"shape": "star", "hosts": 4, "rate": "1Gb/s", "latency": "1us"}
JOB = {"workers": 2, "message": "1KiB"}


@pytest.mark.parametrize(
    ("kind", "plan", "section"),
    [
        (plans.Plan, UNKNOWN, ""),
        (plans.Network, {"network": {**NETWORK, **UNKNOWN}}, "network."),
        (plans.Lossless, {"network": {**NETWORK, "lossless": UNKNOWN}}, "network.lossless."),
        (plans.Hardware, {"network": {**NETWORK, "hardware": UNKNOWN}}, "network.hardware."),
        (plans.Processor, {"network": {**NETWORK, "processor": UNKNOWN}}, "network.processor."),
        (plans.Noise, {"network": NETWORK, "jobs": [{**JOB, "system": "ring", "noise": UNKNOWN}]}, "jobs[0].noise."),
        (
            plans.Delay,
            {"network": NETWORK, "jobs": [{**JOB, "system": "ring", "noise": {"probability": 0.5, "delay": UNKNOWN}}]},
            "jobs[0].noise.delay.",
        ),
        (plans.Timeouts, {"network": NETWORK, "jobs": [{**JOB, "system": "canary", "timeout": UNKNOWN}]}, "jobs[0].timeout."),
        (plans.Traffic, {"network": NETWORK, "traffic": [UNKNOWN]}, "traffic[0]."),
        (plans.Flow, {"network": NETWORK, "flows": [UNKNOWN]}, "flows[0]."),
        (plans.Step, {"network": NETWORK, "flows": [{"from": "host0", "to": "host1", "steps": [UNKNOWN]}]}, "flows[0].steps[0]."),
        (plans.Member, {"network": NETWORK, "limits": [{"hosts": UNKNOWN}]}, "limits[0].hosts."),
        (plans.Limit, {"network": NETWORK, "limits": [UNKNOWN]}, "limits[0]."),
        (plans.Faults, {"network": NETWORK, "faults": UNKNOWN}, "faults."),
        (plans.LinkFaults, {"network": NETWORK, "faults": {"links": [UNKNOWN]}}, "faults.links[0]."),
        (plans.TimedFault, {"network": NETWORK, "faults": {"timed": [UNKNOWN]}}, "faults.timed[0]."),
        (plans.Run, {"network": NETWORK, "run": UNKNOWN}, "run."),
        (plans.Plot, {"network": NETWORK, "plot": [UNKNOWN]}, "plot[0]."),
    ],
)
def test_typed_plans_have_the_keys_that_the_program_has(kind: Any, plan: dict[str, Any], section: str) -> None:
    assert keys(kind) == known_keys(plan, section)


def test_typed_jobs_have_the_keys_of_all_systems() -> None:
    systems = typing.get_args(typing.get_type_hints(plans.Job)["system"])
    with pytest.raises(fanin.PlanError) as raised:
        fanin.simulate({"network": NETWORK, "jobs": [{**JOB, "system": "none"}]})
    assert set(re.findall(r"[`\"]?(\w+)[`\"]?", str(raised.value).split("expected ", 1)[1])) >= set(systems)
    known: set[str] = set()
    for system in systems:
        known |= known_keys({"network": NETWORK, "jobs": [{**JOB, "system": system, **UNKNOWN}]}, "jobs[0].")
    assert keys(plans.Job) == known


def test_a_job_that_trains_tells_its_iterations() -> None:
    job = plans.Job(system="switchml", workers=2, model="resnet50", scale=0.001, iterations=3, compute="50us")
    network = plans.Network(shape="star", hosts=2, rate="100Gb/s", latency="1us")
    results = fanin.simulate(plans.Plan(network=network, jobs=[job]))
    assert results.ok
    [told] = results.to_dicts()[0]["jobs"]
    assert told["message_bytes"] == 98_000
    assert len(told["iterations_us"]) == 3
    assert results.jobs["iteration_us"] == [told["iteration_us"]] == [sum(told["iterations_us"]) / 3]
    assert told["communication_us"] == pytest.approx(told["iteration_us"] - 50)
    assert told["jct_us"] == pytest.approx(sum(told["iterations_us"]))


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.toml")), ids=lambda file: file.stem)
def test_plans_of_the_examples_are_typed_plans(file: Path) -> None:
    def check(value: Any, kind: Any) -> None:
        if typing.is_typeddict(kind):
            assert set(value) <= keys(kind), (file, value)
            for key, hint in typing.get_type_hints(kind).items():
                if key in value:
                    check(value[key], hint)
        elif isinstance(value, list):
            inner = [part for part in typing.get_args(kind) if typing.is_typeddict(part)]
            for item in value:
                for part in inner:
                    check(item, part)

    check(tomllib.loads(file.read_text()), plans.Plan)
