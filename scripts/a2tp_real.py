#!/usr/bin/env python3
"""Runs Fig. 2 of A2TP for real and in the simulator, on the same network, and writes both beside what the paper says.

Writes results.json, series and pictures, and a table into the README.

Usage: a2tp_real.py [--fanin PROGRAM] [--place namespaces|loopback] [--wait SECONDS] [--attempts COUNT] [--out FOLDER] [SYSTEM ...]

The workloads are in experiments/a2tp/fig02_real: SYSTEM.toml has two jobs, SYSTEM_alone.toml job A alone, which is also run with
half of its pool; `--place namespaces` needs root, loopback does not. A system's runs count only if processors were idle enough in each
of them and the job alone loses goodput with half of its pool: otherwise processors, or nothing, limited it. On a machine with other
work, `--wait` has each run wait for idle processors, and `--attempts` has it repeated while they were not; the last one is taken,
whatever it gave. Exits with 1 if a result is not exact or a run does not count. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from readme_tables import BEGIN, END
from real_vs_sim import RunError, output_of, write_readme

FOLDER = Path(__file__).resolve().parent.parent / "experiments" / "a2tp" / "fig02_real"
#: In the order of the table, with the pool that job A has beside job B.
POOLS = {"switchml": 20, "atp": 40, "a2tp": 40}
#: Aggregators of the switch.
AGGREGATORS = 40
#: The part of the time beside each other that is left out, as in the simulator: windows grow from where they begin.
SETTLING_SHARE = 0.25
#: A run with less of the processors' time left over has measured the processors.
IDLE_MIN = 0.3
#: A run is begun once so much was left over for so long: it takes a tenth or more itself.
WAIT_IDLE_MIN, WAIT_SAMPLE_S = 0.45, 2.0
#: A job alone with half of its pool keeps less than this: its aggregators limit it.
KEPT_MAX = 0.9
#: What the paper says: goodput of A and B beside each other over the most that A gets alone (53 Gb/s), and aggregators in use.
PAPER = {
    "switchml": {"a": "0.50", "b": "0.25", "slots_a": "30 % alone", "slots_b": "almost half"},
    "atp": {"a": "0.72", "b": "0.25", "slots_a": "-", "slots_b": "-"},
    "a2tp": {"a": "0.98", "b": "0.25", "slots_a": "41 to 55 %", "slots_b": "1.2 to 4.4 %"},
}


class Testbed:
    """Runs workloads."""

    def __init__(self, fanin: str, place: str, wait_s: float, attempts: int) -> None:
        """Each run waits for idle processors for at most `wait_s`, and is made at most `attempts` times."""
        self.fanin, self.place, self.wait_s, self.attempts = fanin, place, wait_s, attempts

    def run(self, workload: str, out: Path, sets: Sequence[str] = ()) -> dict:
        """What the testbed says of a workload; its series and pictures stand beside `out`."""
        for attempt in range(1, self.attempts + 1):
            wait_for_idle(self.wait_s)
            found = self.once(workload, out, sets)
            found["attempt"] = attempt
            if found["cpu_idle_share"] >= IDLE_MIN:
                break
        return found

    def once(self, workload: str, out: Path, sets: Sequence[str]) -> dict:
        """One attempt."""
        changes = [word for change in sets for word in ("--set", change)]
        files = [str(FOLDER / "fabric.toml"), str(FOLDER / workload)]
        command = [self.fanin, "testbed", *files, "--place", self.place, "--out", str(out), *changes]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RunError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()[-2_000:]}")
        found = json.loads(out.read_text(encoding="utf-8"))
        if not all(operation["exact"] for job in found["jobs"] for operation in job["operations"]):
            raise RunError(f"{workload}: not exact")
        print(f"{workload} {' '.join(sets)}: processors {found['cpu_idle_share']:.0%} idle, {found['cpu_used_share']:.0%} used", flush=True)
        return found


def idle_share(before: str, after: str) -> float:
    """Share of the processors' time that nobody used between two readings of /proc/stat."""
    first, second = ([int(word) for word in text.split("\n", 1)[0].split()[1:9]] for text in (before, after))
    spent = [late - early for early, late in zip(first, second, strict=True)]
    return (spent[3] + spent[4]) / max(sum(spent), 1)


def wait_for_idle(limit_s: float) -> None:
    """Returns when the processors were idle enough for a run for some seconds, or after the limit."""
    stat, deadline = Path("/proc/stat"), time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = stat.read_text(encoding="ascii")
        time.sleep(WAIT_SAMPLE_S)
        if idle_share(before, stat.read_text(encoding="ascii")) >= WAIT_IDLE_MIN:
            return


def together(found: Mapping) -> dict[str, float]:
    """Means over the intervals in which both jobs run, without the first part of that time. Between its operations A sends nothing: such
    intervals are left out."""
    [b] = found["jobs"][1]["operations"]
    operations = found["jobs"][0]["operations"]
    begin, end = b["begun_s"], min(b["ended_s"], operations[-1]["ended_s"])
    begin += (end - begin) * SETTLING_SHARE

    def counts(row: Mapping) -> bool:
        from_s, until_s = row["at_s"] - row["interval_s"], row["at_s"]
        within = any(operation["begun_s"] <= from_s and until_s <= operation["ended_s"] for operation in operations)
        return begin <= from_s and until_s <= end and within

    rows = [row for row in found["series"] if counts(row)]
    of_job = [[row for row in rows if row["job"] == job] for job in (0, 1)]
    if not all(of_job):
        raise RunError("the jobs did not run beside each other for an interval of the series")
    values = {f"goodput_{name}": mean(row["goodput_mbit_s"] for row in own) for name, own in zip("ab", of_job, strict=True)}
    return values | {f"slots_{name}": mean(row["slots"] for row in own) / AGGREGATORS for name, own in zip("ab", of_job, strict=True)}


def sent_again(found: Mapping) -> int:
    """Packets that workers sent again."""
    ends = [end for job in found["jobs"] for operation in job["operations"] for end in operation["workers"]]
    return sum(sum(end["counters"]["retransmitted"].values()) for end in ends)


def measure(testbed: Testbed, system: str, out: Path) -> dict:
    """All real runs of a system."""
    pool = POOLS[system]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{system}.json"
        two = testbed.run(f"{system}.toml", file)
        for ending in ("series.csv", "goodput.svg", "slots.svg"):
            shutil.copy(file.with_suffix(f".{ending}"), out / f"{system}.{ending}")
        alone = testbed.run(f"{system}_alone.toml", file, [f"switches.aggregators={pool}"])
        halved = testbed.run(f"{system}_alone.toml", file, [f"switches.aggregators={pool // 2}"])
    return {
        **together(two),
        "a_mbit_s": [operation["goodput_mbit_s"] for operation in two["jobs"][0]["operations"]],
        "b_mbit_s": two["jobs"][1]["goodput_mbit_s_median"],
        "alone_mbit_s": alone["jobs"][0]["goodput_mbit_s_median"],
        "halved_mbit_s": halved["jobs"][0]["goodput_mbit_s_median"],
        "idle": min(found["cpu_idle_share"] for found in (two, alone, halved)),
        "used": two["cpu_used_share"],
        "attempts": max(found["attempt"] for found in (two, alone, halved)),
        "sent_again": sent_again(two),
    }


def simulated_jobs(fanin: str, plan: str, system: str, sets: Sequence[str] = ()) -> list[dict]:
    """The jobs of a system in the simulator."""
    changes = [word for change in sets for word in ("--set", change)]
    rows = output_of([fanin, "sim", str(FOLDER / plan), "--format", "json", *changes])
    if not isinstance(rows, list) or any(row["census"] != "exact" or row["failure"] for row in rows):
        raise RunError(f"{plan}: the simulation is not exact: {rows}")
    [row] = [row for row in rows if row["series"] == system]
    return row["jobs"]


def simulate(fanin: str, system: str) -> dict:
    """The same numbers in the simulator."""
    a, b = simulated_jobs(fanin, "simulated.toml", system)
    pool = POOLS[system]
    [alone], [halved] = (
        simulated_jobs(fanin, "simulated_alone.toml", system, [f"network.aggregators={size}"]) for size in (pool, pool // 2)
    )
    return {
        "goodput_a": a["together"]["goodput_gbps"] * 1e3,
        "goodput_b": b["together"]["goodput_gbps"] * 1e3,
        "slots_a": a["together"]["slots"] / AGGREGATORS,
        "slots_b": b["together"]["slots"] / AGGREGATORS,
        "b_mbit_s": b["goodput_gbps"] * 1e3,
        "alone_mbit_s": alone["goodput_gbps"] * 1e3,
        "halved_mbit_s": halved["goodput_gbps"] * 1e3,
    }


def objections(measured: Mapping) -> list[str]:
    """Why a system's runs do not count; empty where they do."""
    why = []
    if measured["idle"] < IDLE_MIN:
        why.append(f"processors were {measured['idle']:.0%} idle, less than {IDLE_MIN:.0%}")
    kept = measured["halved_mbit_s"] / measured["alone_mbit_s"]
    if kept > KEPT_MAX:
        why.append(f"A alone keeps {kept:.2f} of its goodput with half of its pool")
    return why


def maximum(rows: Mapping[str, Mapping], side: str) -> float:
    """The most that A gets alone, with whichever system."""
    return max(row[side]["alone_mbit_s"] for row in rows.values())


def table(rows: Mapping[str, Mapping], place: str, load: str) -> str:
    """Both tables, for the README."""
    lines = [
        f"`scripts/a2tp_real.py --place {place}` gave ({load}), beside each other, over the most that A gets alone"
        f" ({maximum(rows, 'measured'):.2f} Mb/s measured, {maximum(rows, 'simulated'):.2f} simulated);"
        " aggregators as shares of the switch's:",
        "",
        "| system | | paper | simulated | measured |",
        "|---|---|---|---|---|",
    ]
    for system, row in rows.items():
        for key, field, text in (
            ("a", "goodput_a", "goodput of A"),
            ("b", "b_mbit_s", "goodput of B"),
            ("slots_a", "slots_a", "aggregators of A"),
            ("slots_b", "slots_b", "aggregators of B"),
        ):
            is_share = key.startswith("slots")
            values = [row[side][field] / (1 if is_share else maximum(rows, side)) for side in ("simulated", "measured")]
            shown = [f"{value:.0%}".replace("%", " %") if is_share else f"{value:.2f}" for value in values]
            lines.append(f"| {system} | {text} | {PAPER[system][key]} | {shown[0]} | {shown[1]} |")
    lines += [
        "",
        "| system | A's iterations (Mb/s) | A alone: its pool, half of it (Mb/s) | simulated | processors idle, at least | used by the run"
        " | sent again | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for system, row in rows.items():
        measured, simulated = row["measured"], row["simulated"]
        attempts = "" if measured["attempts"] == 1 else f", up to {measured['attempts']} attempts"
        iterations = ", ".join(f"{value:.2f}" for value in measured["a_mbit_s"])
        alone, simulated_alone = (f"{of['alone_mbit_s']:.2f}, {of['halved_mbit_s']:.2f}" for of in (measured, simulated))
        verdict = f"counts{attempts}" if not row["objections"] else f"**does not count**: {'; '.join(row['objections'])}"
        idle, used = f"{measured['idle']:.0%}", f"{measured['used']:.0%}"
        lines.append(f"| {system} | {iterations} | {alone} | {simulated_alone} | {idle} | {used} | {measured['sent_again']} | {verdict} |")
    return "\n".join(lines)


def load_text() -> str:
    """How busy the machine is with other things."""
    one, five, _ = Path("/proc/loadavg").read_text(encoding="ascii").split()[:3]
    return f"load average before: {one} in a minute, {five} in five"


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fanin", default="target/release/fanin", help="the program")
    parser.add_argument("--place", default="namespaces", choices=("loopback", "namespaces"), help="where the testbed runs")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds that each run waits for idle processors at most")
    parser.add_argument("--attempts", type=int, default=1, help="how often a run is made at most while processors were not idle enough")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where results.json, series, pictures and the README's tables go")
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"of {', '.join(POOLS)}; all where none is given")
    options = parser.parse_args(arguments)
    unknown = set(options.systems) - set(POOLS)
    if unknown:
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(POOLS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    load, rows = load_text(), {}
    testbed = Testbed(options.fanin, options.place, options.wait, max(options.attempts, 1))
    try:
        for system in [system for system in POOLS if not options.systems or system in options.systems]:
            measured = measure(testbed, system, options.out)
            rows[system] = {"simulated": simulate(options.fanin, system), "measured": measured, "objections": objections(measured)}
            print(f"{system}: {'; '.join(rows[system]['objections']) or 'counts'}", flush=True)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    (options.out / "results.json").write_text(
        json.dumps({"place": options.place, "load": load, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    text = table(rows, options.place, load)
    print(text)
    readme = options.out / "README.md"
    if readme.exists() and BEGIN in readme.read_text(encoding="utf-8") and END in readme.read_text(encoding="utf-8"):
        write_readme(readme, text)
    return 1 if any(row["objections"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
