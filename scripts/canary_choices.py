#!/usr/bin/env python3
"""Runs Canary's Figs 7, 8, 10 and 11 with one open choice made otherwise at a time, and writes which choice turns which verdict.

    scripts/canary_choices.py --fanin target/release/fanin          # runs what results.json lacks, then writes the table
    scripts/canary_choices.py --table                               # only writes the table
    scripts/canary_choices.py --fanin FANIN --again                 # runs everything anew

What is run is in experiments/canary/choices/choices.toml; results.json there has the verdicts of each figure and choice, so that a run
which is stopped goes on where it was. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path

BEGIN, END = "<!-- results -->", "<!-- end of results -->"
KEPT = ("claim", "class", "measured", "interval", "window", "verdict", "reason", "seeds")


class ChoicesError(Exception):
    """A file is not what it must be, or a run failed."""


def toml(value: object) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    return json.dumps(value)


def series(name: str, figure: dict, choice: dict) -> dict:
    """A series of a figure, with what a choice says of Canary alone."""
    if name == "ring":
        return {"name": name, "set": {"jobs.0.system": "ring"}}
    if name.endswith(("tree", "trees")):
        return {"name": name, "set": {"jobs.0.system": "tree", "jobs.0.trees": int(name.split()[0])}}
    if not name.startswith("Canary"):
        raise ChoicesError(f"series {name!r}: expected ring, N trees or Canary")
    keys = dict(figure.get("canary", {}))
    own = name.removeprefix("Canary").replace(" ", "")
    # One for all switches, roots as well.
    keys["timeout"] = own or "1us"
    changed = choice.get("canary", {})
    keys |= {key: value for key, value in changed.items() if key != "timeout" or own in ("", "1us")}
    return {"name": name, "set": {"jobs.0.system": "canary"} | {f"jobs.0.{key}": value for key, value in keys.items()}}


def assignments(plan: dict, name: str, choice: dict) -> list[str]:
    """What is set for a figure and a choice."""
    figure = plan["figures"][name]
    all_series = "series=" + toml([series(one, figure, choice) for one in figure["series"]])
    return [*plan["size"], *figure.get("set", []), all_series, *choice.get("set", [])]


def run(fanin: str, threads: int, folder: Path, name: str, sets: list[str]) -> list[dict]:
    """The figure's claims, held against what comes out."""
    command = [fanin, "repro", "canary", name, "--quick", "--no-causes", "--format", "json"]
    command += ["--dir", str(folder), "--threads", str(threads)]
    for one in sets:
        command += ["--set", one]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChoicesError(f"{name}: {done.stderr.strip()[-2000:]}")
    return [{key: claim.get(key) for key in KEPT} for claim in json.loads(done.stdout)]


def number(value: object) -> str:
    """A measured number, or several, as people read them."""
    if isinstance(value, list):
        return "/".join(number(one) for one in value)
    return f"{value:.3g}" if isinstance(value, (int, float)) else "-"


def short(claim: dict) -> str:
    return claim["claim"].split("/", 1)[1]


SIGNS = {"reproduced": "+", "not reproduced": "-", "undecided": "?"}


def cell(claims: list[dict] | None, base: list[dict] | None) -> str:
    """How many claims of a figure are reproduced, and those that are not as they are without the choice."""
    if claims is None:
        return ""
    judged = [claim for claim in claims if claim["verdict"] in SIGNS]
    good = sum(claim["verdict"] == "reproduced" for claim in judged)
    text = f"{good} of {len(judged)}"
    before = {claim["claim"]: claim for claim in base or []}
    turned = []
    for claim in judged:
        old = before.get(claim["claim"])
        if old is not None and old["verdict"] in SIGNS and old["verdict"] != claim["verdict"]:
            sign = SIGNS[old["verdict"]] + SIGNS[claim["verdict"]]
            turned.append(f"`{sign}` {short(claim)} ({number(old['measured'])} to {number(claim['measured'])})")
    return "; ".join([text, *turned])


def table(plan: dict, results: dict) -> str:
    """A row a choice, a column a figure."""
    names = list(plan["figures"])
    rows = ["| choice | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    base = results.get(plan["choices"][0]["name"], {})
    for choice in plan["choices"]:
        found = results.get(choice["name"], {})
        if found:
            rows.append(f"| {choice['name']} | " + " | ".join(cell(found.get(name), base.get(name)) for name in names) + " |")
    wanted = [(choice["name"], name) for choice in plan["choices"] for name in choice["figures"]]
    missing = [f"{choice}: {name}" for choice, name in wanted if name not in results.get(choice, {})]
    return "\n".join(rows + (["", "Not run: " + "; ".join(missing) + "."] if missing else []))


def numbers(plan: dict, results: dict) -> str:
    """What each claim's number is with each choice, figure by figure."""
    parts = []
    for name in plan["figures"]:
        columns = [choice["name"] for choice in plan["choices"] if name in results.get(choice["name"], {})]
        if not columns:
            continue
        by = {column: {short(claim): claim for claim in results[column][name]} for column in columns}
        claims = [claim for claim in by[columns[0]] if by[columns[0]][claim]["measured"] is not None]
        parts += ["", f"### {name}", "", "| choice | " + " | ".join(claims) + " |", "|---" * (len(claims) + 1) + "|"]
        for column in columns:
            shown = [f"{SIGNS.get(by[column][claim]['verdict'], '')} {number(by[column][claim]['measured'])}".strip() for claim in claims]
            parts.append(f"| {column} | " + " | ".join(shown) + " |")
    return "\n".join(parts)


def insert(text: str, results: str, where: str) -> str:
    """The text with other results between its marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ChoicesError(f"{where}: expected {BEGIN} and then {END}, each once")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{results}\n{END}{rest.split(END)[1]}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="fanin", help="the program")
    parser.add_argument("--threads", type=int, default=2, help="runs at the same time")
    parser.add_argument("--again", action="store_true", help="run what results.json has, too")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--experiments", type=Path, default=Path(__file__).resolve().parent.parent / "experiments")
    options = parser.parse_args(arguments)
    folder = options.experiments / "canary" / "choices"
    try:
        plan = tomllib.loads((folder / "choices.toml").read_text())
        store = folder / "results.json"
        results = json.loads(store.read_text()) if store.exists() and not options.again else {}
        for choice in plan["choices"] if not options.table else []:
            for name in choice["figures"]:
                if name in results.get(choice["name"], {}):
                    continue
                claims = run(options.fanin, options.threads, options.experiments, name, assignments(plan, name, choice))
                results.setdefault(choice["name"], {})[name] = claims
                store.write_text(json.dumps(results, indent=1) + "\n")
                print(f"{choice['name']}, {name}: {cell(claims, results[plan['choices'][0]['name']].get(name))}", flush=True)
        readme = folder / "README.md"
        readme.write_text(insert(readme.read_text(), table(plan, results) + "\n" + numbers(plan, results), str(readme)))
    except (ChoicesError, OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
