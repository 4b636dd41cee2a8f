"""`fanin.repro`, `fanin.testbed` and pictures: the same code as the program's, with what Python has of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fanin
from fanin.program import find_program

ROOT = Path(__file__).resolve().parents[2]


def by_program(out: Path, *arguments: str) -> None:
    """Runs `fanin repro` in the same way."""
    command = [find_program(), "repro", *arguments, "--quick", "--no-causes", "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)


def test_papers_are_those_that_the_program_lists() -> None:
    listed = subprocess.check_output([find_program(), "repro"], text=True)
    assert "".join(f"{paper}: {', '.join(figures)}\n" for paper, figures in fanin.papers().items()) == listed
    assert fanin.papers(ROOT / "experiments") == fanin.papers()


@pytest.fixture(scope="module")
def done() -> fanin.Reproduction:
    return fanin.repro("canary", ["fig06"], quick=True, causes=False)


def test_a_reproduction_is_what_the_program_writes(done: fanin.Reproduction, tmp_path: Path) -> None:
    by_program(tmp_path / "program", "canary", "fig06")
    done.save(tmp_path / "python")

    def files(folder: Path) -> dict[str, str]:
        return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*")) if file.is_file()}

    mine, programs = files(tmp_path / "python"), files(tmp_path / "program")
    assert mine.keys() == programs.keys()
    # The only numbers that differ from run to run are how long a run took.
    for name in mine:
        if not name.endswith(("results.json", "results.csv")):
            assert mine[name] == programs[name], name
    assert json.loads(programs["claims.json"]) == done.claims
    assert done.ok
    assert done.figures == ["fig06"]
    assert {claim["claim"] for claim in done.claims} == set(done.verdicts)
    assert done.results["fig06"].ok
    assert done.report() == programs["report.html"]
    assert "claims reproduced" in repr(done)


def test_pictures_are_files_or_texts(done: fanin.Reproduction, tmp_path: Path) -> None:
    pictures = done.plot(tmp_path / "pictures")
    assert dict(pictures) == dict(done.results["fig06"].plot()) == dict(done.plot(figure="fig06"))
    assert {file.stem: file.read_text() for file in (tmp_path / "pictures").iterdir()} == dict(pictures)
    name = next(iter(pictures))
    one = done.plot(tmp_path / "one.svg", name=name)
    assert list(one) == [name]
    assert (tmp_path / "one.svg").read_text() == pictures[name]
    assert one._repr_html_().startswith("<svg")
    with pytest.raises(KeyError, match=f"name = 'nothing': expected one of .*{name}"):
        done.plot(name="nothing")
    with pytest.raises(KeyError, match="figure = 'fig1': expected one of fig06"):
        done.plot(figure="fig1")
    job = {"system": "ring", "workers": 2, "message": "1KiB"}
    plan = {"network": {"shape": "star", "hosts": 2, "rate": "1Gb/s", "latency": "1us"}, "jobs": [job]}
    several = fanin.simulate(plan, changes={"run.memory_interval": "1us"})
    with pytest.raises(ValueError, match="expected one picture, and there are 2: links, memory"):
        several.plot(tmp_path / "two.svg")
    assert not (tmp_path / "two.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (["nobody"], {}, '"nobody": expected one of .*canary'),
        (["canary", "fig1"], {}, '"fig1": expected one of .*fig08'),
        (["canary", ["fig08", "fig2"]], {}, '"fig2": expected one of'),
        (["canary", "fig08"], {"changes": {"network.rate": "fast"}}, 'network.rate = "fast"'),
        (["canary", "fig08"], {"experiments": "/nowhere"}, '"canary": expected one of'),
    ],
)
def test_what_there_is_not_is_refused_by_name(arguments: list[Any], keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(fanin.PlanError, match=message):
        fanin.repro(*arguments, **keywords)


def test_progress_counts_all_runs() -> None:
    seen: list[tuple[int, int]] = []
    fanin.repro("canary", "fig06", quick=True, causes=False, threads=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(ValueError, match="threads = 0"):
        fanin.repro("canary", threads=0)


FABRIC = {
    "defaults": {"rate": "100Mb/s", "delay": "100us", "hello_interval": "50ms", "hello_timeout": "500ms"},
    "leaf_spine": {"leaves": 1, "spines": 1, "hosts_per_leaf": 3},
}
WORKLOAD = {"job": [{"system": "tree", "hosts": "all", "message": "16KiB", "operations": 1, "rto_min": "100ms"}]}


def test_a_testbed_is_real_and_exact(tmp_path: Path) -> None:
    result = fanin.testbed(FABRIC, WORKLOAD, seed=3, changes={"job.0.operations": 2}, logs=tmp_path / "logs")
    assert result.ok, result.problems
    assert result.record["seed"] == 3
    assert [operation["exact"] for operation in result.record["jobs"][0]["operations"]] == [True, True]
    assert {file.name for file in (tmp_path / "logs").iterdir()} >= {"fabric.toml", "host0.log", "leaf0.log"}
    result.save(tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == result.record
    assert "job 0 (tree)" in str(result)
    assert repr(result) == "<fanin.TestbedResults of tree: as expected>"


def test_a_testbed_that_is_not_as_expected_is_a_result(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.toml"
    fabric.write_text((ROOT / "examples" / "testbed" / "fabric.toml").read_text())
    workload = '[[job]]\nsystem = "tree"\nhosts = ["host0", "host1"]\nmessage = "1KiB"\nexpect = "failure"\n'
    result = fanin.testbed(fabric, workload)
    assert not result.ok
    assert result.problems


@pytest.mark.parametrize(
    ("fabric", "workload", "keywords", "message"),
    [
        ({**FABRIC, "leaf_spine": {"leaves": "two"}}, WORKLOAD, {}, "leaves"),
        (FABRIC, {"job": []}, {}, r"job = \[\]: expected a list of tables|job"),
        (FABRIC, "[[job]]\nsystem = 'nothing'\n", {}, "system"),
        (FABRIC, WORKLOAD, {"changes": {"job.0.message": "many"}}, 'message = "many"'),
        ("nowhere.toml", WORKLOAD, {}, "nowhere.toml: cannot be read"),
        (FABRIC, WORKLOAD, {"seed": -1}, "seed = -1"),
    ],
)
def test_wrong_fabrics_and_workloads_are_refused(fabric: Any, workload: Any, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(fanin.PlanError, match=message):
        fanin.testbed(fabric, workload, **keywords)
    with pytest.raises(ValueError, match="place = 'moon'"):
        fanin.testbed(FABRIC, WORKLOAD, place="moon")  # type: ignore[arg-type]


LONG = f"""
import fanin
workload = {{**{WORKLOAD!r}, "run": {{"time_limit": "600s"}}}}
workload["job"][0].update(operations=100_000)
print("begun", flush=True)
try:
    fanin.testbed({FABRIC!r}, workload)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_testbed_with_all_its_processes() -> None:
    process = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    while process.poll() is None and not children(process.pid):
        pass
    started = children(process.pid)
    assert started
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == "interrupted\n"
    assert process.wait() == 0
    process.stdout.close()
    assert not [number for number in started if Path(f"/proc/{number}").exists()]


def children(parent: int) -> list[int]:
    """The processes that a process has started, from any of its threads."""
    found: list[int] = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            found += [int(number) for number in task.read_text().split()]
        except OSError:
            continue
    return found
