#!/usr/bin/env python3
"""Runs Fig. 12 of Rina for real and in the simulator, on the same network, and holds the ratios against claims.

Writes results.json and tables into the README.

Usage: rina_real.py [--fanin PROGRAM] [--place namespaces|loopback] [--wait SECONDS] [--attempts COUNT] [--out FOLDER] [CASE ...]

Everything is in experiments/rina/fig12: the fabric, a workload for each system, the plan of the simulator and the claims.
`--place namespaces` needs root, loopback does not. On a machine with other work, `--wait` has each run wait for idle processors, and
`--attempts` has it repeated while they were not; the last one is taken, and the table says how idle they were. A row whose processors
were busy does not count, and no claim that needs it is judged. Exits with 1 if a result is not exact, a row does not count or a claim
does not hold. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from a2tp_real import IDLE_MIN, load_text, wait_for_idle
from readme_tables import BEGIN, number, window
from real_vs_sim import RunError, judge, output_of, row_of, sets, write_readme

FOLDER = Path(__file__).resolve().parent.parent / "experiments" / "rina" / "fig12"
#: Length of the vector, and operations.
CASES = {"long": {"message": '"1MiB"', "operations": "3"}, "short": {"message": '"64KiB"', "operations": "9"}}
#: Workload and its changes, in the order of the table. "all" and "one" are switches that aggregate, of two.
SYSTEMS: dict[str, tuple[str, dict[str, str]]] = {
    "ring": ("ring.toml", {}),
    "rina-none": ("rina.toml", {"aggregating": "0"}),
    "rina-one": ("rina.toml", {"aggregating": "1"}),
    "rina-all": ("rina.toml", {"aggregating": "2"}),
    "atp-one": ("atp.toml", {"aggregating": "1"}),
    "atp-all": ("atp.toml", {"aggregating": "2"}),
}


def simulate(fanin: str, changes: Mapping[str, str]) -> dict[str, float]:
    """Goodput of each system in the simulator, in Mb/s."""
    in_plan = {("iterations" if key == "operations" else key): value for key, value in changes.items()}
    rows = output_of([fanin, "sim", str(FOLDER / "simulated.toml"), "--format", "json", *sets("jobs", in_plan)])
    if not isinstance(rows, list) or any(row["census"] != "exact" or row["failure"] for row in rows):
        raise RunError(f"the simulation is not exact: {rows}")
    return {row["series"]: row["goodput_gbps"] * 1e3 for row in rows}


def measure(fanin: str, workload: str, place: str, changes: Mapping[str, str]) -> dict:
    """What the testbed says of one workload."""
    files = [str(FOLDER / "fabric.toml"), str(FOLDER / workload)]
    found = output_of([fanin, "testbed", *files, "--place", place, "--format", "json", *sets("job", changes)])
    if not isinstance(found, dict):
        raise RunError(f"{workload}: expected an object")
    return found


def counts(row: Mapping) -> bool:
    """Whether the network was measured and not the processors."""
    return row["cpu_idle_share"] >= IDLE_MIN


def table(rows: Sequence[Mapping], judged: Sequence[Mapping], place: str, load: str) -> str:
    """Both tables, for the README."""
    lines = [
        f"`scripts/rina_real.py --place {place}` gave, in Mb/s ({load}):",
        "",
        "| vector | system | simulated | measured: median (lowest to highest) | measured / simulated | sent again | processors idle | used by the run | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = f"{row['measured_mbit_s']:.2f} ({row['measured_lowest_mbit_s']:.2f} to {row['measured_highest_mbit_s']:.2f})"
        idle, used = (f"{row[key]:.0%}" for key in ("cpu_idle_share", "cpu_used_share"))
        verdict = "counts" if counts(row) else f"**does not count**: less than {IDLE_MIN:.0%} idle"
        length = f"{row['message_bytes'] // 1024} KiB"
        lines.append(
            f"| {length} | {row['system']} | {row['simulated_mbit_s']:.2f} | {spread} | {row['ratio']:.2f} | {row['sent_again']} | {idle} | {used} | {verdict} |"
        )
    lines += ["", "| claim | text | value | window | verdict |", "|---|---|---|---|---|"]
    for claim in judged:
        verdict = "holds" if claim["holds"] else "**does not hold**"
        lines.append(f"| {claim['id']} | {claim['text']} | {number(claim['measured'])} | {window(claim['window'])} | {verdict} |")
    return "\n".join(lines)


def judged_by(rows: Sequence[Mapping], claims: Sequence[Mapping]) -> list[dict]:
    """The claims all of whose rows count."""

    def places(claim: Mapping) -> list[tuple[str, str]]:
        value = claim["value"]
        return [(place["case"], place["system"]) for place in (value, value.get("over", value))]

    counting = {(row["case"], row["system"]) for row in rows if counts(row)}
    return judge(rows, [claim for claim in claims if counting.issuperset(places(claim))])


def run(options: argparse.Namespace) -> list[dict]:
    """All rows."""
    rows = []
    for case in [case for case in CASES if not options.cases or case in options.cases]:
        simulated = simulate(options.fanin, CASES[case])
        for system, (workload, changes) in SYSTEMS.items():
            for _ in range(max(options.attempts, 1)):
                wait_for_idle(options.wait)
                row = row_of(case, system, simulated[system], measure(options.fanin, workload, options.place, {**CASES[case], **changes}))
                if counts(row):
                    break
            rows.append(row)
            idle = f"processors {row['cpu_idle_share']:.0%} idle, {row['cpu_used_share']:.0%} used"
            print(f"{case} {system}: {row['simulated_mbit_s']:.2f} simulated, {row['measured_mbit_s']:.2f} measured, {idle}", flush=True)
    return rows


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fanin", default="target/release/fanin", help="the program")
    parser.add_argument("--place", default="namespaces", choices=("loopback", "namespaces"), help="where the testbed runs")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds that each run waits for idle processors at most")
    parser.add_argument("--attempts", type=int, default=1, help="how often a run is made at most while processors were not idle enough")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where results.json and the README's tables go")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all where none is given")
    options = parser.parse_args(arguments)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    load = load_text()
    try:
        rows = run(options)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    judged = judged_by(rows, json.loads((FOLDER / "claims.json").read_text(encoding="utf-8")))
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"place": options.place, "load": load, "rows": rows, "claims": judged}
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = table(rows, judged, options.place, load)
    print(text)
    readme = options.out / "README.md"
    if readme.exists() and BEGIN in readme.read_text(encoding="utf-8"):
        write_readme(readme, text)
    return 0 if all(map(counts, rows)) and all(claim["holds"] for claim in judged) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
