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


def share(ends: list) -> str:
    """The ends of a difference, in percent."""
    low, high = (f"{100 * end:.2g}" if abs(end) < 0.1 else f"{100 * end:.0f}" for end in ends)
    return f"{low} %" if low == high else f"{low} to {high} %"


def interval(value: object) -> str:
    """Of a number its ends, of an order those of the differences of neighbours; nothing where it is a point."""
    if not isinstance(value, list) or not value:
        return ""
    if isinstance(value[0], list):
        return "by " + ", ".join(share(ends) for ends in value)
    return "" if value[0] == value[1] else f"{number(value[0])} to {number(value[1])}"


def seeds(claim: dict) -> str:
    """How many seeds; any number of them where the plan draws nothing."""
    if claim.get("draws") is None:
        return "-"
    return str(claim["seeds"]) if claim["draws"] else "any"


def verdict(claim: dict) -> str:
    """The verdict, marked where it is of one seed, and its reason."""
    mark = " (1 seed)" if claim.get("seeds") == 1 else ""
    return claim["verdict"] + mark + (f" ({claim['reason']})" if claim.get("reason") else "")


def measured(claim: dict) -> list[str]:
    """What was measured, its interval and its seeds."""
    return [number(claim["measured"]), interval(claim.get("interval")), seeds(claim)]


def causes(claims: list[dict]) -> list[str]:
    """Each cause, with what came of its change for each of its claims."""
    found: dict[str, list[str]] = {}
    for claim in claims:
        name = claim["claim"].split("/", 1)[1]
        for cause in claim.get("causes", []):
            change = cause["change"] if len(cause["change"]) <= 60 else "a changed plan, in claims.toml"
            head = f"- **{cause['of_all']}**, `{cause['cause']}`: {cause['text']} (`{change}`; expected {cause['expected']})."
            changed = cause["changed"]
            came = "not run" if changed is None else f"{number(changed['measured'])}, {changed['verdict']}"
            why = f" ({cause['why']})" if cause.get("why") else ""
            said = f"{name}: {number(claim['measured'])}, {claim['verdict']}; with the change {came}{why}"
            found.setdefault(head, []).append(said)
    return [f"{head} {'. '.join(said)}." for head, said in found.items()]


def cell(text: str) -> str:
    """Text that stays in its cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def row(claim: dict) -> list[str]:
    """A claim, and below it what other readings of the text give."""
    name = claim["claim"].split("/", 1)[1] + (" (consistency)" if claim.get("class") == "consistency" else "")
    rows = [[name, claim["paper"], number(claim["paper_value"]), *measured(claim), window(claim["window"]), verdict(claim)]]
    for reading in claim.get("readings", []):
        rows.append(["", f"*{reading['reading']} reading*", "", *measured(reading), "", verdict(reading)])
    return ["| " + " | ".join(cell(text) for text in cells) + " |" for cells in rows]


def table(paper: str, claims: list[dict]) -> str:
    """All claims of a figure."""
    quick = any(claim["quick"] for claim in claims)
    figure = claims[0]["figure"]
    command = f"fanin repro {paper} {figure}{' --quick' if quick else ''}"
    note = f"`{command}` gave:" + (" (fewer repetitions and points than the plan has)" if quick else "")
    head = ["| claim | the paper says | paper | measured | interval | seeds | window | verdict |", "|---|---|---|---|---|---|---|---|"]
    lines = [note, "", *head, *(line for claim in claims for line in row(claim))]
    found = causes(claims)
    return "\n".join([*lines, "", *found] if found else lines)


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
