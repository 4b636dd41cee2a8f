#!/usr/bin/env python3
"""What the model checker has looked at, as a page.

Usage: models_table.py [--run [TEST ...]]

Each model of `crates/check/tests` writes a line of JSON when it has been looked at (`FANIN_MODELS`). `--run` runs them all, those that take minutes too (or those of
the tests that are named, as `canary_shared::NAME`), and keeps the lines in `crates/check/models.jsonl`; docs/models.md is made from these. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "crates" / "check" / "models.jsonl"
PAGE = ROOT / "docs" / "models.md"
TESTS = ROOT / "crates" / "check" / "tests"
#: What looks at a model, in tests.
LOOKS = re.compile(r"\bassert_(?:holds|safe|found|literal_breaks)\b\s*\(")
TEST = re.compile(r"#\[test\](?:\s*#\[ignore[^\n]*\])?\s*fn (\w+)\(\)")
#: Properties as the page has them: their short names.
SHORT = {
    "every piece is the exact sum, once": "exact",
    "never stuck": "not stuck",
    "time passes only as often as losses explain": "progress",
    "nothing is left behind": "nothing left",
}

Model = Mapping[str, Any]


def tests_with_models(sources: Iterable[tuple[str, str]]) -> set[str]:
    """The tests that look at models, by module and name, from the text of each module."""
    found = set()
    for module, text in sources:
        places = [(match.start(), match.group(1)) for match in TEST.finditer(text)]
        ends = [*(begin for begin, _ in places), len(text)][1:] if places else []
        looking = {name for name in re.findall(r"^fn (\w+)", text, re.MULTILINE) if LOOKS.search(body_of(text, name))}
        calls = re.compile("|".join([LOOKS.pattern, *(rf"\b{name}\b\s*\(" for name in sorted(looking))]))
        for (begin, name), end in zip(places, ends, strict=True):
            body = text[begin:end]
            if calls.search(body[body.index("{") :]):
                found.add(f"{module}::{name}")
    return found


def body_of(text: str, name: str) -> str:
    """A function's text: from its name to the first line that is only a brace."""
    begin = re.search(rf"^fn {name}\b", text, re.MULTILINE)
    if begin is None:
        return ""
    return text[begin.end() : text.find("\n}\n", begin.end())]


def record() -> list[Model]:
    """The models of the last run."""
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def written(models: Iterable[Model]) -> str:
    """Models as they are kept: in an order that does not depend on which came first."""
    in_order = sorted(models, key=lambda model: (model["test"], model["name"]))
    return "".join(json.dumps(model, separators=(",", ":")) + "\n" for model in in_order)


def run(some: Sequence[str]) -> None:
    """Looks at all models, or at those of some tests, and keeps what they say."""
    known = tests_with_models((path.stem, path.read_text()) for path in TESTS.glob("*.rs"))
    strange = set(some) - known
    if strange:
        sys.exit(f"models_table: {', '.join(sorted(strange))}: expected tests that look at models: {', '.join(sorted(known))}")
    names = sorted(some or known)
    kept = [model for model in record() if model["test"] in known.difference(names)] if some else []
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "models.jsonl"
        command = ["cargo", "test", "--locked", "-p", "fanin-check", "--test", "all", "--", "--include-ignored", "--test-threads", "1", "--exact", *names]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "FANIN_MODELS": str(lines)}, check=True)
        RECORD.write_text(written([*kept, *(json.loads(line) for line in lines.read_text().splitlines())]))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def seconds(value: float) -> str:
    """A time as people read it."""
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s" if value >= 0.1 else "< 0.1 s"


def systems(model: Model) -> str:
    """The systems of its jobs."""
    return ", ".join(sorted(set(model["systems"])))


def size(model: Model) -> str:
    """Hosts, switches and vectors."""
    jobs = "; ".join("+".join(map(str, job)) for job in model["elements"])
    return f"{model['workers']} workers, {model['switches']} switch{'es' if model['switches'] != 1 else ''}, {jobs} elements"


def by_system(models: Sequence[Model]) -> dict[str, list[Model]]:
    """Models by the systems of their jobs."""
    found: dict[str, list[Model]] = {}
    for model in models:
        found.setdefault(systems(model), []).append(model)
    return dict(sorted(found.items()))


def in_short(models: Sequence[Model]) -> str:
    """A row for each system."""
    rows = []
    for name, own in by_system(models).items():
        hold = [model for model in own if model["verdict"] == "holds"]
        states = sum(model["states"] for model in hold)
        largest = max(hold, key=lambda model: model["states"], default=None)
        most = f"{largest['states']:,} ({largest['name']})" if largest else "-"
        rows.append([name, len(hold), f"{states:,}", most, len(own) - len(hold), seconds(sum(model["seconds"] for model in own))])
    return table(["system", "models that hold", "states", "largest", "bugs found", "time"], rows)


def holding(models: Sequence[Model]) -> str:
    """All models that hold, system by system."""
    parts = []
    for name, own in by_system([model for model in models if model["verdict"] == "holds"]).items():
        rows = [
            [
                model["name"],
                size(model),
                ", ".join(model["may_happen"]) or "any order",
                ", ".join(SHORT[one] for one in model["properties"]),
                f"{model['states']:,}",
                model["depth"],
                seconds(model["seconds"]),
            ]
            for model in own
        ]
        parts.append(f"### {name}\n\n" + table(["model", "size", "what may happen", "holds", "states", "depth", "time"], rows))
    return "\n\n".join(parts)


def broken(models: Sequence[Model]) -> str:
    """Bugs put in, and what finds them."""
    rows = [
        [systems(model), model["name"], SHORT[model["properties"][0]], len(model["steps"]), f"{model['states']:,}"]
        for model in models
        if model["verdict"] == "breaks" and model["literal"] is None
    ]
    return table(["system", "bug", "breaks", "steps to it", "states"], sorted(rows, key=lambda row: (row[0], row[1])))


def literal(models: Sequence[Model]) -> str:
    """Rules of papers that break, each with its counterexample."""
    parts = []
    for model in models:
        rule = model["literal"]
        if rule is None:
            continue
        steps = "\n".join(f"{number}. {step(one)}" for number, one in enumerate(model["steps"], 1))
        parts.append(
            f"### {rule['clause']}\n\n> {rule['says']}\n\nBreaks \"{model['properties'][0]}\", in {size(model)}, after {model['states']:,} states. "
            f"Done here instead: {rule['instead']}.\n\n{steps}"
        )
    return "\n\n".join(parts)


def step(text: str) -> str:
    """A step of a counterexample, in words."""
    name, _, rest = text.partition("(")
    numbers = [int(one) for one in re.findall(r"\d+", rest)]
    words = {
        "Submit": "the late worker begins",
        "Deliver": "packet {0} of those under way arrives",
        "Lose": "packet {0} of those under way is lost",
        "Repeat": "packet {0} of those under way is repeated",
        "EarlyTimeout": "a timer of node {0} runs out, early",
        "Crash": "job {0} crashes",
        "End": "switches are told that job {0} is over",
        "Die": "worker {0} dies",
        "TakeForDead": "worker {0} takes worker {1} for dead",
        "TimePasses": "nothing is under way: all timers run out",
    }
    return words[name].format(*numbers)


PARTS = {"short": in_short, "all": holding, "bugs": broken, "literal": literal}


def rendered(page: str, models: Sequence[Model]) -> str:
    """The page with its tables made anew."""
    for name, part in PARTS.items():
        pattern = re.compile(rf"(<!-- models: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(page):
            sys.exit(f"{PAGE.name}: expected <!-- models: {name} --> and <!-- end -->")
        text = part(models)
        page = pattern.sub(lambda match, text=text: f"{match.group(1)}\n{text}\n\n{match.group(2)}", page)
    return page


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--run", nargs="*", metavar="TEST", help="look at all models first, which takes minutes, or at those of these tests")
    given = parser.parse_args(arguments)
    if given.run is not None:
        run(given.run)
    PAGE.write_text(rendered(PAGE.read_text(), record()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
