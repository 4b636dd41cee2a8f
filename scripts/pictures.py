#!/usr/bin/env python3
"""Makes the pictures and tables of the documentation with the program: `docs/img`, `docs/plans/results.json` and the tables between marks.

Usage: pictures.py [--fanin PROGRAM] [--check] [NAME ...]

NAME is a plan of docs/plans, `quickstart`, `blocks` or `links`; without one all are made. With --check nothing is written, and what differs from
the files is an error. Python 3.11's standard library only.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import picture_gains
import picture_links
import readme_tables

ROOT = Path(__file__).resolve().parent.parent
PLANS = ROOT / "docs" / "plans"
IMAGES = ROOT / "docs" / "img"
RESULTS = PLANS / "results.json"
#: Two leaves of workers, for pictures of one block and of the links that a system uses.
BLOCK = PLANS / "block.toml"
QUICKSTART = ROOT / "examples" / "quickstart.toml"

#: The picture at the head of a system's page: one block of a system whose packets name theirs, or all packets of a short vector, link by link;
#: above it, what a plan needs beside `system`.
HEAD = re.compile(r"(?:<!-- picture: (.*) -->\n)?!\[[^\]]*\]\(\.\./img/(block|links)-([a-z0-9]+)\.svg\)")


def heads(kind: str) -> dict[str, list[str]]:
    """The systems whose pages have such a picture, and what their plans need."""
    found = {}
    for page in sorted((ROOT / "docs" / "systems").glob("*.md")):
        for needed, which, system in HEAD.findall(page.read_text()):
            if which == kind:
                found[system] = needed.split()
    return found


#: What takes seconds with a program that is not optimised, so that every change is held against it.
QUICK = ("blocks", "links", "slots", "stragglers", "collisions")


class Maker:
    """Runs the program, and collects what files should hold."""

    def __init__(self, program: Path) -> None:
        self.program = program.resolve()
        self.files: dict[Path, str] = {}
        self.results: dict[str, object] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def run(self, *arguments: str | Path) -> None:
        """Runs a command of the program, whose files go where it is told."""
        subprocess.run([self.program, *arguments], cwd=ROOT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def blocks(self) -> None:
        """One block of each system whose packets name it."""
        with tempfile.TemporaryDirectory() as folder:
            for system, more in heads("block").items():
                picture = Path(folder) / f"{system}.svg"
                sets = [f"--set={one}" for one in (f"jobs.0.system={system}", *more)]
                self.run("trace", BLOCK, *sets, "--block", "5", "--picture", picture, "--out", Path(folder) / "block.pcapng")
                self.files[IMAGES / f"block-{system}.svg"] = picture.read_text()

    def links(self) -> None:
        """All packets of a short vector, for the systems whose packets name no block."""
        for system, more in heads("links").items():
            with tempfile.TemporaryDirectory() as folder:
                sets = [f"--set={one}" for one in (f"jobs.0.system={system}", "jobs.0.message=8KiB", *more)]
                self.run("sim", BLOCK, *sets, "--out", folder)
                with (Path(folder) / "links.csv").open() as rows:
                    self.files[IMAGES / f"links-{system}.svg"] = picture_links.draw(
                        f"{system}: 8 KiB over 8 workers", list(csv.DictReader(rows))
                    )

    def plan(self, plan: Path, names: Mapping[str, str] | None = None) -> None:
        """A plan's pictures, by the names of its plots or as `names` has them, and the numbers that they show."""
        plots = tomllib.loads(plan.read_text())["plot"]
        with tempfile.TemporaryDirectory() as folder:
            self.run("sim", plan, "--out", folder)
            with (Path(folder) / "results.csv").open() as file:
                rows = list(csv.DictReader(file))
            for plot in plots:
                name = plot["name"] if names is None else names.get(plot["name"])
                if name is not None:
                    self.files[IMAGES / f"{name}.svg"] = (Path(folder) / f"{plot['name']}.svg").read_text()
        if names is None:
            recorded = {plot["name"]: shown(plot, rows, names_of_values(plan)) for plot in plots}
            self.results[plan.stem] = {"plan": digest(plan), "plots": recorded}
            if plan.stem == "overlap":
                self.files[IMAGES / "gains.svg"] = picture_gains.draw([(plot["name"], gains(recorded[plot["name"]])) for plot in plots])

    def make(self, name: str) -> None:
        """What has this name."""
        if name == "blocks":
            self.blocks()
        elif name == "links":
            self.links()
        elif name == "quickstart":
            self.plan(QUICKSTART, {"goodput": "quickstart"})
        else:
            self.plan(PLANS / f"{name}.toml")


def digest(plan: Path) -> str:
    """What a plan says, comments and empty lines left out, in sixteen digits."""
    return hashlib.sha256(json.dumps(tomllib.loads(plan.read_text()), sort_keys=True).encode()).hexdigest()[:16]


def names_of_values(plan: Path) -> dict[str, dict[str, str]]:
    """For each key that a plan sweeps with names: the name of each value, as results have values."""
    swept = tomllib.loads(plan.read_text()).get("sweep", {})
    return {
        key: {str(value).lower() if isinstance(value, bool) else str(value): name for name, value in values.items()}
        for key, values in swept.items()
        if isinstance(values, dict)
    }


def shown(
    plot: Mapping[str, object], rows: Sequence[Mapping[str, str]], values: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, object]:
    """The numbers of a picture: for each place on its axis and each series the median over repetitions, of the rows that the plot shows."""
    values, only = values or {}, plot.get("only", {})
    assert isinstance(only, Mapping)

    def place_of(row: Mapping[str, str], key: str) -> str:
        value = row[f"params.{key}"]
        return values.get(key, {}).get(value, value)

    axis, y = str(plot["x"]), str(plot["y"])
    rows = [row for row in rows if all(place_of(row, key) in wanted for key, wanted in only.items())]
    places = list(dict.fromkeys(place_of(row, axis) for row in rows))
    series = list(dict.fromkeys(row.get("series", "") for row in rows))
    medians = [
        [one, [statistics.median(float(row[y]) for row in rows if place_of(row, axis) == place and row.get("series", "") == one) for place in places]]
        for one in series
    ]
    return {"x": axis, "y": y, "places": places, "medians": medians}


def gains(plot: Mapping[str, object]) -> dict[str, object]:
    """What each series gains of the first one's time, in percent of that time: negative where it takes longer."""
    medians = plot["medians"]
    assert isinstance(medians, list)
    base = medians[0][1]
    rest = [[series, [100 * (1 - mine / first) for mine, first in zip(numbers, base, strict=True)]] for series, numbers in medians[1:]]
    return {**plot, "medians": rest}


#: How the documentation calls axes and numbers.
WORDS = {
    "jobs.0.message": "vector",
    "traffic.0.load": "load of other traffic",
    "faults.links.0.loss": "loss per link",
    "jobs.0.workload.blocks.0.nodes.0.compute": "share of communication",
    "jobs.0.window": "slots",
    "jobs.0.timeout": "timeout",
    "jobs.0.descriptors": "places in the table",
    "goodput_gbps": "goodput (Gb/s)",
    "iteration_us": "iteration (us)",
    "counts.stragglers": "stragglers (packets)",
    "counts.collisions": "collisions (packets)",
}


def table(plots: Sequence[Mapping[str, object]]) -> str:
    """The numbers of one picture, a column a series; or of several pictures with the same axis and one series, a column a picture."""
    titles, columns = [WORDS[str(plots[0]["x"])]], []
    for plot in plots:
        medians = plot["medians"]
        assert isinstance(medians, list)
        for series, numbers in medians:
            titles.append(series or WORDS[str(plot["y"])])
            columns.append(numbers)
    places = plots[0]["places"]
    assert isinstance(places, list)
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for index, place in enumerate(places):
        lines.append(f"| {place} | {' | '.join(readme_tables.number(numbers[index]) for numbers in columns)} |")
    return "\n".join(lines)


MARKS = re.compile(r"<!-- (results|gains): ([a-z ]+) -->\n.*?<!-- end of results -->", re.DOTALL)


def with_tables(page: str, results: Mapping[str, object]) -> str:
    """A page with the recorded numbers between its marks."""
    plots = {name: plot for plan in results.values() for name, plot in plan["plots"].items()}  # type: ignore[index]

    def put(match: re.Match[str]) -> str:
        chosen = [plots[name] if match[1] == "results" else gains(plots[name]) for name in match[2].split()]
        return f"<!-- {match[1]}: {match[2]} -->\n\n{table(chosen)}\n\n<!-- end of results -->"

    return MARKS.sub(put, page)


def names() -> list[str]:
    """What can be made, the quickest first."""
    plans = sorted(path.stem for path in PLANS.glob("*.toml") if path != BLOCK)
    return ["blocks", "links", *plans, "quickstart"]


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--fanin", type=Path, default=ROOT / "target" / "debug" / "fanin", metavar="PROGRAM", help="target/debug/fanin if it is not given"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; what differs is an error")
    parser.add_argument("names", nargs="*", metavar="NAME", help="make only these")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(names())
    if unknown:
        parser.error(f"no such picture: {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    maker = Maker(options.fanin)
    for name in options.names or names():
        print(f"making: {name}", flush=True)
        maker.make(name)
    maker.files[RESULTS] = json.dumps(maker.results, indent=1, sort_keys=True) + "\n"
    for page in sorted((ROOT / "docs").glob("*.md")):
        maker.files[page] = with_tables(page.read_text(), maker.results)
    changed = [path for path, text in maker.files.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        print(f"{'differs' if options.check else 'wrote'}: {path.relative_to(ROOT)}")
        if not options.check:
            path.write_text(maker.files[path])
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
