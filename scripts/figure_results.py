#!/usr/bin/env python3
"""Writes what came out of `fanin repro` into the READMEs of the figures, between two marks, as a table beside what the paper says.

    fanin repro canary --out out/canary
    scripts/figure_results.py out/canary/claims.json experiments/canary

Several claims.json may be given; of a figure that is in more than one, the last counts. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


class ResultsError(Exception):
    """A file is missing or is not what it must be."""


def number(value: object) -> str:
    """A measured number, or several, as people read them."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(number(one) for one in value)
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def window(value: object) -> str:
    """What would agree with the claim."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    low, high = value
    if low is None and high is None:
        return "any"
    if high is None:
        return f"{number(low)} or more"
    return f"{number(high)} or less" if low is None else f"{number(low)} to {number(high)}"


def cell(text: str) -> str:
    """Text that stays in its cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def row(claim: dict) -> list[str]:
    """A claim, and below it what other readings of the text give."""
    name = claim["claim"].split("/", 1)[1]
    verdict = claim["verdict"] + (f" ({claim['reason']})" if claim.get("reason") else "")
    cells = [name, claim["paper"], number(claim["paper_value"]), number(claim["measured"]), window(claim["window"]), verdict]
    rows = [cells]
    for reading in claim.get("readings", []):
        said = reading["verdict"] + (f" ({reading['reason']})" if reading.get("reason") else "")
        rows.append(["", f"*{reading['reading']} reading*", "", number(reading["measured"]), "", said])
    return ["| " + " | ".join(cell(text) for text in cells) + " |" for cells in rows]


def table(paper: str, claims: list[dict]) -> str:
    """All claims of a figure."""
    quick = any(claim["quick"] for claim in claims)
    figure = claims[0]["figure"]
    command = f"fanin repro {paper} {figure}{' --quick' if quick else ''}"
    note = f"`{command}` gave:" + (" (fewer repetitions and points than the plan has)" if quick else "")
    head = ["| claim | the paper says | paper | measured | window | verdict |", "|---|---|---|---|---|---|"]
    return "\n".join([note, "", *head, *(line for claim in claims for line in row(claim))])


def insert(text: str, results: str, where: str) -> str:
    """The text with other results between its marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ResultsError(f"{where}: expected {BEGIN} and then {END}, each once")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{results}\n{END}{rest.split(END)[1]}"


def load(path: Path) -> list[dict]:
    """The claims of one run."""
    try:
        claims = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ResultsError(f"{path}: {error}") from error
    if not isinstance(claims, list) or any("figure" not in claim for claim in claims):
        raise ResultsError(f"{path}: expected an array with an object a claim, as `fanin repro` writes it")
    return claims


def main(arguments: list[str]) -> int:
    """From the command line to the exit code."""
    parser = argparse.ArgumentParser(description="Writes results of `fanin repro` into the READMEs of figures.")
    parser.add_argument("claims", type=Path, nargs="+", help="claims.json of a run")
    parser.add_argument("experiments", type=Path, help="folder with a folder for each figure")
    options = parser.parse_args(arguments)
    figures: dict[str, list[dict]] = {}
    try:
        for path in options.claims:
            found: dict[str, list[dict]] = {}
            for claim in load(path):
                found.setdefault(claim["figure"], []).append(claim)
            figures.update(found)
        for figure, claims in sorted(figures.items()):
            readme = options.experiments / figure / "README.md"
            if not readme.exists():
                raise ResultsError(f"{readme} is not there")
            readme.write_text(insert(readme.read_text(), table(options.experiments.resolve().name, claims), str(readme)))
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
