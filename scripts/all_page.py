#!/usr/bin/env python3
"""Makes the numbers and pictures of `docs/which.md` from what the runs of `experiments/all` gave, and runs them again.

Usage: all_page.py [--check]
       all_page.py --take OUT ...
       all_page.py --run [--fanin PROGRAM] [--threads N] [AXIS ...]

Without options the tables of the page and its pictures are made from `experiments/all/AXIS/results.json`. With --check nothing is
written, and what differs is an error. --take reads what `fanin repro all --out OUT` left into these files, and --run does all of it: it
makes the plans, runs them in full, records verdicts and results, and makes the page. Python 3.11's standard library only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import all_picture
import all_plans
import pictures
import readme_tables

ROOT = all_plans.ROOT
PAGE = ROOT / "docs" / "which.md"
IMAGES = ROOT / "docs" / "img"

#: What is kept of a run.
FIELDS = ("goodput_gbps", "completion_us", "iteration_us", "exposed_us")
#: Two-sided, at 95 %, by the number of seeds.
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
#: A difference below this share counts as none, and a single seed may be off by the other, as `fanin repro` has them.
MARGIN, SINGLE = 0.01, 0.1
#: Systems within this share of the best are as good.
NEAR = 0.03

Runs = Mapping[str, Mapping[str, Sequence[float | None]]]


def digest(axis: str) -> str:
    """What the plan of an axis says, in sixteen digits."""
    return pictures.digest(all_plans.FOLDER / axis / "plan.toml")


def called(value: object) -> str:
    """What a page calls a value: probabilities by their powers of ten."""
    if isinstance(value, float):
        return f"{value:.0e}".replace("e-0", "e-") if value else "0"
    return str(value)


def name_of(system: str) -> str:
    """What a page calls a system: a variant in brackets, since lists have commas."""
    head, *variant = system.split(", ", 1)
    return f"{head} ({variant[0]})" if variant else head


def places(axis: all_plans.Axis) -> list[str]:
    """The places of an axis, in the order of its runs."""
    parts = [[called(one) for one in values] for values in axis.sweep.values()]
    return [", ".join(one) for one in itertools.product(*parts)]


def taken(name: str, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What is kept of an axis' runs: for each field, system and place, a number a seed; none where a run failed."""
    axis = all_plans.AXES[name]
    order = [(system.name, place) for system in axis.systems() for place in places(axis) for _ in range(axis.repetitions)]
    if [row["series"] for row in rows] != [system for system, _ in order]:
        raise SystemExit(
            f"{name}: expected {len(order)} runs of {len(axis.systems())} systems in the order of the plan, {len(rows)} are there"
        )
    kept: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for (system, place), row in zip(order, rows, strict=True):
        for one in FIELDS:
            value = row.get(one)
            if one == "exposed_us" and "jobs" in row:
                jobs = row["jobs"]
                assert isinstance(jobs, list)
                value = (jobs[0].get("workload") or {}).get("exposed_us")
            if value is None and row.get("failure") is None:
                continue
            kept.setdefault(one, {}).setdefault(system, {}).setdefault(place, []).append(
                None if row.get("failure") is not None else float(f"{float(str(value)):.6g}")
            )
    return {"plan": digest(name), **kept}


def recorded(name: str) -> dict[str, object] | None:
    """What is recorded of an axis."""
    file = all_plans.FOLDER / name / "results.json"
    return json.loads(file.read_text()) if file.exists() else None


def speeds(results: Mapping[str, object], axis: all_plans.Axis) -> Runs:
    """For each system and place, a number a seed that is larger the better: goodput, or one over a time."""
    found = results[axis.shown]
    assert isinstance(found, Mapping)
    if axis.shown == "goodput_gbps":
        return found
    return {system: {place: [one and 1 / one for one in runs] for place, runs in of.items()} for system, of in found.items()}


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """Student's t around the mean, at 95 %."""
    mean = statistics.fmean(numbers)
    if len(numbers) < 2:
        return mean, mean
    half = STUDENT[len(numbers)] * statistics.stdev(numbers) / len(numbers) ** 0.5
    return mean - half, mean + half


def against(mine: Sequence[float | None], other: Sequence[float | None]) -> str:
    """Whether the first has more than the second: `above`, `below`, `level` or, where seeds do not decide, `undecided`; `fails`."""
    if None in mine:
        return "fails"
    pairs = [(one, two) for one, two in zip(mine, other, strict=True) if one is not None and two is not None]
    shares = [(one - two) / ((one + two) / 2) for one, two in pairs]
    low, high = interval(shares) if len(shares) > 1 else (shares[0] - SINGLE, shares[0] + SINGLE)
    if low > MARGIN:
        return "above"
    if high < -MARGIN:
        return "below"
    return "level" if -MARGIN <= low and high <= MARGIN else "undecided"


def cell(numbers: Sequence[float | None], how: str) -> str:
    """A number as the table has it: the median, the interval where it is wider than 2 % to either side, and what it is to the ring."""
    kept = [one for one in numbers if one is not None]
    if len(kept) < len(numbers):
        return "fails"
    low, high = interval(kept)
    text = readme_tables.number(statistics.median(kept))
    if high - low > 0.04 * statistics.fmean(kept):
        text += f" ({readme_tables.number(max(low, 0.0))} to {readme_tables.number(high)})"
    return {"above": f"**{text}**", "below": f"_{text}_"}.get(how, text)


def table(name: str) -> str:
    """The numbers of an axis: a row a system, a column a place."""
    axis, results = all_plans.AXES[name], recorded(name)
    if results is None:
        return "Not run yet."
    shown, fast = results[axis.shown], speeds(results, axis)
    assert isinstance(shown, Mapping)
    columns = places(axis)
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for system, of in shown.items():
        cells = [cell(of[place], "level" if system == "ring" else against(fast[system][place], fast["ring"][place])) for place in columns]
        lines.append(f"| {name_of(system)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def listed(systems: Sequence[str]) -> str:
    """Systems, as a page lists them."""
    return ", ".join(map(name_of, systems))


def median(numbers: Sequence[float | None]) -> float:
    """The median, or nothing where a run failed."""
    return 0.0 if None in numbers else statistics.median(one for one in numbers if one is not None)


def best(fast: Runs, place: str) -> list[str]:
    """The systems that are within 3 % of the one with most, the best first."""
    found = sorted(((median(of[place]), system) for system, of in fast.items() if place in of), key=lambda one: -one[0])
    return [system for number, system in found if number >= (1 - NEAR) * found[0][0]]


def regions(name: str) -> str:
    """Which systems win and lose where, along an axis."""
    axis, results = all_plans.AXES[name], recorded(name)
    if results is None:
        return "Not run yet."
    fast = speeds(results, axis)
    lines = ["| | first, or within 3 % of it | times the ring | behind the ring |", "|---|---|---|---|"]
    for place in places(axis):
        first = best(fast, place)
        times = median(fast[first[0]][place]) / median(fast["ring"][place])
        behind = [system for system, of in fast.items() if against(of[place], fast["ring"][place]) in ("below", "fails")]
        lines.append(f"| {place} | {listed(first)} | {readme_tables.number(times)} | {listed(behind) or 'none'} |")
    return "\n".join(lines)


def flips(name: str) -> str:
    """What another assumption turns: who is first, and who is before or behind the ring."""
    axis, results = all_plans.AXES[name], recorded(name)
    if results is None:
        return "Not run yet."
    fast = speeds(results, axis)
    first, *rest = [list(values) for values in axis.sweep.values()]
    lines = ["| assumption | first, or within 3 % of it | what turns against the ring |", "|---|---|---|"]
    for tail in itertools.product(*rest):
        base = ", ".join(map(called, (first[0], *tail)))
        for head in first:
            place = ", ".join(map(called, (head, *tail)))
            turned = []
            for system, of in fast.items():
                was, now = against(of[base], fast["ring"][base]), against(of[place], fast["ring"][place])
                if was != now and {was, now} & {"above", "below", "fails"} and "undecided" not in (was, now):
                    turned.append(f"{name_of(system)}: {was}, now {now}")
            lines.append(f"| {place} | {listed(best(fast, place))} | {'; '.join(turned) or ('' if place == base else 'nothing')} |")
    return "\n".join(lines)


def gains(name: str) -> str:
    """What a system gains of a step by the ring, in percent, beside what of it waits for communication."""
    axis, results = all_plans.AXES[name], recorded(name)
    if results is None:
        return "Not run yet."
    steps, exposed = results["iteration_us"], results["exposed_us"]
    assert isinstance(steps, Mapping) and isinstance(exposed, Mapping)
    columns = places(axis)
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    shares = [100 * median(exposed["ring"][place]) / median(steps["ring"][place]) for place in columns]
    lines.append(f"| share of the ring's step that waits | {' | '.join(f'{share:.0f} %' for share in shares)} |")
    for system in steps:
        if system == "ring":
            continue
        cells = []
        for place in columns:
            gained = [100 * (1 - mine / ring) for mine, ring in zip(steps[system][place], steps["ring"][place], strict=True)]
            low, high = interval(gained)
            text = f"{statistics.median(gained):.1f} %"
            cells.append(text if high - low <= 2 else f"{text} ({low:.0f} to {high:.0f})")
        lines.append(f"| {name_of(system)} | {' | '.join(cells)} |")
    return "\n".join(lines)


#: What to choose when: the situation, the advice, and the axis, place and systems whose numbers stand for it.
CHOICES: Sequence[tuple[str, str, str, str, Sequence[str]]] = (
    ("short vectors, idle network", "a tree, or what is one to the network", "sizes", "1KiB", ("1 tree", "Canary", "Rina", "ring")),
    ("long vectors, idle network", "anything that sums in every switch", "sizes", "4MiB", ("4 trees", "Canary", "NetReduce", "ring")),
    (
        "a gigabyte, in packets of 4 KiB",
        "anything that sums in every switch; Canary with a short window",
        "long",
        "1GiB",
        ("4 trees", "Canary, window 32", "ring", "Canary"),
    ),
    (
        "other traffic on the same links",
        "several trees; Canary where they cannot be had",
        "congestion",
        "95 %",
        ("4 trees", "Canary", "1 tree", "ring"),
    ),
    ("a packet in 100,000 lost", "Canary", "loss", "1e-5", ("Canary", "4 trees", "NetReduce", "ring")),
    ("a packet in 10,000 lost", "Canary", "loss", "1e-4", ("Canary", "NetReduce", "SwitchML", "ring")),
    (
        "a packet in 1,000 lost",
        "Canary with a short window; NetReduce with repairs at its switches",
        "own_parameters",
        "loss of 1e-3",
        ("Canary, window 64", "NetReduce", "ring", "4 trees", "Canary"),
    ),
    ("a packet in 100 lost", "NetReduce with repairs at its switches", "loss", "1e-2", ("NetReduce", "Canary", "PANAMA", "ring")),
    (
        "other traffic, and leaves oversubscribed 2:1",
        "several trees; Canary that learns its timeouts",
        "own_parameters",
        "load of 50 %, leaves 2:1",
        ("4 trees", "Canary, learns timeouts", "NetReduce", "ring", "Canary"),
    ),
    (
        "a spine fails for good",
        "Canary, with a short window; or the ring",
        "spine_gone",
        "one gone",
        ("Canary, window 64", "ring", "Rina", "Canary"),
    ),
    ("a quarter of the switches sum", "the ring, or Rina", "partial", "25 %", ("ring", "Rina", "4 trees", "ATP")),
    ("all leaves sum, spines do not", "several trees", "partial", "50 %", ("4 trees", "PANAMA", "A2TP", "ring")),
    ("64 jobs, little memory in switches", "equal parts: SwitchML", "jobs", "64", ("SwitchML", "ring", "Canary", "A2TP")),
    ("uplinks oversubscribed 8:1", "a tree", "oversubscription", "8:1", ("1 tree", "NetReduce", "Canary", "ring")),
    ("1,024 hosts, 256 KiB", "a tree", "hosts", "64", ("1 tree", "Canary", "Rina", "ring")),
)


#: The sections of the page.
ANCHORS = {
    "sizes": "sizes",
    "long": "sizes",
    "congestion": "congestion",
    "loss": "loss",
    "spine_gone": "a-failing-spine",
    "partial": "partial-deployment",
    "jobs": "jobs",
    "oversubscription": "oversubscription",
    "hosts": "hosts",
    "own_parameters": "windows-and-orders",
}


def choices() -> str:
    """The table of what to choose when, with the numbers behind it."""
    lines = ["| situation | choose | the runs say |", "|---|---|---|"]
    for situation, advice, name, place, systems in CHOICES:
        axis, results = all_plans.AXES[name], recorded(name)
        if results is None:
            lines.append(f"| {situation} | {advice} | not run yet |")
            continue
        shown = results[axis.shown]
        assert isinstance(shown, Mapping)
        unit = "Gb/s" if axis.shown == "goodput_gbps" else "us"
        said = ", ".join(f"{name_of(system)} {readme_tables.number(median(shown[system][place]))}" for system in systems)
        lines.append(f"| [{situation}](#{ANCHORS[name]}) | {advice} | {said} {unit} |")
    return "\n".join(lines)


MADE = {"table": table, "regions": regions, "flips": flips, "gains": gains}
MARKS = re.compile(r"<!-- all: ([a-z]+)(?: ([a-z0-9_]+))? -->\n.*?<!-- end -->", re.DOTALL)


def with_numbers(page: str) -> str:
    """A page with what its marks name."""

    def put(match: re.Match[str]) -> str:
        what = choices() if match[1] == "choices" else MADE[match[1]](match[2])
        mark = f"{match[1]} {match[2]}" if match[2] else match[1]
        return f"<!-- all: {mark} -->\n\n{what}\n\n<!-- end -->"

    return MARKS.sub(put, page)


def panels(names: Sequence[str]) -> list[all_picture.Panel]:
    """Axes as the picture shows them: how many times the ring's speed each system has at each place."""
    found = []
    for name in names:
        axis, results = all_plans.AXES[name], recorded(name)
        if results is None:
            continue
        fast = speeds(results, axis)
        cells = {
            system: [None if None in of[place] else median(of[place]) / median(fast["ring"][place]) for place in places(axis)]
            for system, of in fast.items()
        }
        found.append(all_picture.Panel(axis.short or name, places(axis), {name_of(system): of for system, of in cells.items()}))
    return found


#: The pictures of the page, and the axes that each shows.
PICTURES = {
    "which": ("sizes", "congestion", "congestion_2to1", "loss"),
    "which-network": ("oversubscription", "hosts", "partial", "spine_gone", "jobs"),
    "which-steps": ("workloads",),
}


def made() -> dict[Path, str]:
    """All files that follow from the records."""
    systems = [name_of(system.name) for system in all_plans.SYSTEMS if system.dense]
    files = {IMAGES / f"{name}.svg": all_picture.draw(panels(axes), systems) for name, axes in PICTURES.items()}
    for page in [PAGE, *sorted(all_plans.FOLDER.rglob("README.md"))]:
        if page.exists():
            files[page] = with_numbers(page.read_text())
    return files


def take(folders: Sequence[Path]) -> list[str]:
    """Reads what full runs left; the axes that were there."""
    found = []
    for folder, name in itertools.product(folders, all_plans.AXES):
        file = folder / name / "results.json"
        if file.exists():
            kept = json.dumps(taken(name, json.loads(file.read_text())), indent=None, separators=(",", ":"))
            (all_plans.FOLDER / name / "results.json").write_text(kept.replace('},"', '},\n"').replace(':{"', ':{\n"') + "\n")
            found.append(name)
    return found


def run(program: Path, threads: str, names: Sequence[str]) -> None:
    """Runs axes in full, and records them."""
    for name in names or all_plans.AXES:
        (all_plans.FOLDER / name / "plan.toml").write_text(all_plans.plan(name))
        with tempfile.TemporaryDirectory() as out:
            common = [str(program), "repro", "all", name, "--dir", str(ROOT / "experiments")]
            subprocess.run([*common, "--out", out, "--threads", threads], check=True, stdin=subprocess.DEVNULL)
            subprocess.run([*common, "--record", out], check=True, stdin=subprocess.DEVNULL)
            take([Path(out)])


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; what differs is an error")
    parser.add_argument("--take", type=Path, nargs="+", default=[], metavar="OUT", help="read what full runs left in these folders")
    parser.add_argument("--run", action="store_true", help="run axes in full first, and record them")
    parser.add_argument("--fanin", type=Path, default=ROOT / "target" / "release" / "fanin", metavar="PROGRAM")
    parser.add_argument("--threads", default="2")
    parser.add_argument("axes", nargs="*", metavar="AXIS")
    options = parser.parse_args(arguments)
    if options.run:
        run(options.fanin, options.threads, options.axes)
    for name in take(options.take):
        print(f"took: {name}")
    changed = [path for path, text in made().items() if not path.exists() or path.read_text() != text]
    for path in changed:
        print(f"{'differs' if options.check else 'wrote'}: {path.relative_to(ROOT)}")
        if not options.check:
            path.write_text(made()[path])
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
