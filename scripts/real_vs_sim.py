#!/usr/bin/env python3
"""Runs the same workloads on the same fabrics in the simulator and for real, and writes both side by side: results.json, a table and a picture.

Usage: real_vs_sim.py [--fanin PROGRAM] [--place loopback|namespaces] [--message LENGTH] [--operations COUNT] [--out FOLDER] [CASE ...]

Cases are folders in experiments/canary/real_vs_sim: `plan.toml` is simulated, and SYSTEM.toml is run by `fanin testbed` on fabric.toml (or on
star.toml, where the case is so called). `--message 64MiB --operations 1` changes both sides alike. Exits with 1 if a claim of claims.json fails or a result is not exact. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from readme_tables import BEGIN, END, number, window

FOLDER = Path(__file__).resolve().parent.parent / "experiments" / "canary" / "real_vs_sim"
SYSTEMS = ("canary", "tree")
#: In the order of the table and the picture.
CASES = ("star", "idle", "congested", "loss", "loss5")


class RunError(Exception):
    """A run gave nothing."""


def output_of(command: Sequence[str]) -> object:
    """What a command prints as JSON."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()[-2_000:]}")
    return json.loads(done.stdout)


def sets(key: str, changes: Mapping[str, str]) -> list[str]:
    """Changes of a job for the command line; plans call their jobs `jobs`, workloads `job`."""
    return [word for name, value in changes.items() for word in ("--set", f"{key}.0.{name}={value}")]


def simulate(fanin: str, case: str, changes: Mapping[str, str]) -> dict[str, float]:
    """Goodput of each system in the simulator, in Mb/s."""
    rows = output_of([fanin, "sim", str(FOLDER / case / "plan.toml"), "--format", "json", *sets("jobs", changes)])
    if not isinstance(rows, list) or any(row["census"] != "exact" or row["failure"] for row in rows):
        raise RunError(f"{case}: the simulation is not exact: {rows}")
    return {row["series"]: row["goodput_gbps"] * 1e3 for row in rows}


def measure(fanin: str, case: str, system: str, place: str, changes: Mapping[str, str]) -> dict:
    """What the testbed says of one workload."""
    fabric = FOLDER / ("star.toml" if case == "star" else "fabric.toml")
    workload = FOLDER / case / f"{system}.toml"
    found = output_of([fanin, "testbed", str(fabric), str(workload), "--place", place, "--format", "json", *sets("job", changes)])
    if not isinstance(found, dict):
        raise RunError(f"{case}, {system}: expected an object")
    return found


def row_of(case: str, system: str, simulated: float, found: Mapping) -> dict:
    """A line of the table."""
    [job] = found["jobs"]
    operations = job["operations"]
    if not all(operation["exact"] for operation in operations):
        raise RunError(f"{case}, {system}: not exact")
    goodputs = [operation["goodput_mbit_s"] for operation in operations]
    ends = [end for operation in operations for end in operation["workers"]]
    measured = job["goodput_mbit_s_median"]
    return {
        "case": case,
        "system": system,
        "message_bytes": job["message_bytes"],
        "simulated_mbit_s": simulated,
        "measured_mbit_s": measured,
        "measured_lowest_mbit_s": min(goodputs),
        "measured_highest_mbit_s": max(goodputs),
        "ratio": measured / simulated,
        "sent_again": sum(sum(end["counters"]["retransmitted"].values()) for end in ends),
        "traffic_arrived": arrived(found["streams"]),
        "cpu_idle_share": found["cpu_idle_share"],
        "cpu_used_share": found["cpu_used_share"],
    }


def arrived(streams: Sequence[Mapping]) -> float | None:
    """Share of the background's packets that arrived."""
    sent = sum(stream["sent"]["packets"] for stream in streams)
    return sum(stream["received"]["packets"] for stream in streams) / sent if sent else None


def value_of(rows: Sequence[Mapping], place: Mapping) -> float:
    """A claim's value: a field of one row, or of one row over another's."""
    [row] = [row for row in rows if row["case"] == place["case"] and row["system"] == place["system"]]
    value = row[place["of"]]
    return value / value_of(rows, place["over"]) if "over" in place else value


def judge(rows: Sequence[Mapping], claims: Sequence[Mapping]) -> list[dict]:
    """Every claim whose cases were run, with its value and whether it lies in its window."""
    ran = {row["case"] for row in rows}
    judged = []
    for claim in claims:
        places = [claim["value"], *([claim["value"]["over"]] if "over" in claim["value"] else [])]
        if all(place["case"] in ran for place in places):
            value, (low, high) = value_of(rows, claim["value"]), claim["window"]
            holds = (low is None or value >= low) and (high is None or value <= high)
            judged.append({**claim, "measured": value, "holds": holds})
    return judged


def table(rows: Sequence[Mapping], judged: Sequence[Mapping], place: str) -> str:
    """Both tables, for the README."""
    lines = [
        f"`scripts/real_vs_sim.py --place {place}` gave, in Mb/s:",
        "",
        "| case | system | simulated | measured: median (lowest to highest) | measured / simulated | sent again | processors idle | used by the run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = f"{row['measured_mbit_s']:.2f} ({row['measured_lowest_mbit_s']:.2f} to {row['measured_highest_mbit_s']:.2f})"
        idle, used = (f"{row[key]:.0%}" for key in ("cpu_idle_share", "cpu_used_share"))
        lines.append(
            f"| {row['case']} | {row['system']} | {row['simulated_mbit_s']:.2f} | {spread} | {row['ratio']:.3f} | {row['sent_again']} | {idle} | {used} |"
        )
    lines += ["", "| claim | text | value | window | verdict |", "|---|---|---|---|---|"]
    for claim in judged:
        verdict = "holds" if claim["holds"] else "**does not hold**"
        lines.append(f"| {claim['id']} | {claim['text']} | {number(claim['measured'])} | {window(claim['window'])} | {verdict} |")
    return "\n".join(lines)


def picture(rows: Sequence[Mapping]) -> str:
    """Pairs of bars: simulated and measured."""
    width, height, left, bottom, bar = 80, 260, 50, 60, 26
    most = max(max(row["simulated_mbit_s"], row["measured_highest_mbit_s"]) for row in rows) * 1.1
    scale = (height - bottom - 30) / most
    total = left + width * len(rows) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{total}" height="{height}" fill="white"/>',
        '<text x="50" y="16">goodput in Mb/s: <tspan fill="#4477aa">simulated</tspan>, <tspan fill="#cc6677">measured</tspan></text>',
    ]
    base = height - bottom
    for tick in range(0, int(most) + 1, 5):
        y = base - tick * scale
        parts.append(f'<line x1="{left}" x2="{total - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    for index, row in enumerate(rows):
        x = left + width * index + (width - 2 * bar) / 2
        for place, (key, colour) in enumerate((("simulated_mbit_s", "#4477aa"), ("measured_mbit_s", "#cc6677"))):
            tall = row[key] * scale
            parts.append(f'<rect x="{x + place * bar:.1f}" y="{base - tall:.1f}" width="{bar - 2}" height="{tall:.1f}" fill="{colour}"/>')
        low, high = (base - row[key] * scale for key in ("measured_lowest_mbit_s", "measured_highest_mbit_s"))
        middle = x + 1.5 * bar - 1
        parts.append(f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="black"/>')
        for line, text in enumerate((row["case"], row["system"], f"{row['ratio']:.2f}")):
            parts.append(f'<text x="{x + bar:.1f}" y="{base + 15 + 14 * line}" text-anchor="middle">{text}</text>')
    return "\n".join([*parts, "</svg>", ""])


def write_readme(file: Path, text: str) -> None:
    """Puts the tables between the README's two marks."""
    before, rest = file.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fanin", default="target/release/fanin", help="the program")
    parser.add_argument("--place", default="loopback", choices=("loopback", "namespaces"), help="where the testbed runs")
    parser.add_argument("--message", help="length of the vector in place of the cases' own, such as 64MiB; needs an --out of its own")
    parser.add_argument("--operations", type=int, help="operations in place of the cases' own; needs an --out of its own")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where results.json, the picture and the README's tables go")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all where none is given")
    options = parser.parse_args(arguments)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    changes = {"message": f'"{options.message}"'} if options.message else {}
    changes |= {"operations": str(options.operations)} if options.operations else {}
    if changes and options.out == FOLDER:
        parser.error("--message and --operations: expected an --out of their own, or they would replace the results of the cases as they are")
    rows = []
    try:
        for case in [case for case in CASES if not options.cases or case in options.cases]:
            simulated = simulate(options.fanin, case, changes)
            for system in SYSTEMS:
                row = row_of(case, system, simulated[system], measure(options.fanin, case, system, options.place, changes))
                rows.append(row)
                idle = f"processors {row['cpu_idle_share']:.0%} idle, {row['cpu_used_share']:.0%} used"
                print(f"{case} {system}: {row['simulated_mbit_s']:.2f} simulated, {row['measured_mbit_s']:.2f} measured, {idle}", flush=True)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    judged = judge(rows, json.loads((FOLDER / "claims.json").read_text(encoding="utf-8")))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps({"place": options.place, "rows": rows, "claims": judged}, indent=1) + "\n", encoding="utf-8")
    (options.out / "goodput.svg").write_text(picture(rows), encoding="utf-8")
    text = table(rows, judged, options.place)
    print(text)
    if (options.out / "README.md").exists():
        write_readme(options.out / "README.md", text)
    return 0 if all(claim["holds"] for claim in judged) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
