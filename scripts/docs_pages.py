"""What the site says without anybody typing it: parameters, commands, columns and verdicts as Markdown, made from the files that tests hold
against the program. Python's standard library only."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import readme_tables

#: In the order in which a reader asks for them.
VERDICTS = ("reproduced", "not reproduced", "undecided", "reported", "cannot be tested here", "not recorded")

#: Types of plans, and the tables of a file that they are, in the order of the documentation.
TABLES = {
    "Network": "[network]",
    "Job": "[[jobs]]",
    "Traffic": "[[traffic]]",
    "Flow": "[[flows]]",
    "Limit": "[[limits]]",
    "Faults": "[faults]",
    "LinkFaults": "[[faults.links]]",
    "TimedFault": "[[faults.timed]]",
    "Series": "[[series]]",
    "Run": "[run]",
    "Plot": "[[plot]]",
}

#: Pages with metrics, and what they are about.
METRICS = {"switch": "The switch service", "fabric": "A switch of a fabric", "transparent": "The transparent switch"}


@dataclass(frozen=True)
class Key:
    """A key of a plan, as `fanin.plans` types it."""

    table: str
    name: str
    type: str
    #: The systems that have it; empty where every system has, and where the table is not that of jobs.
    systems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row of a table about keys: what it is called, its default, what it means."""

    name: str
    systems: tuple[str, ...]
    default: str
    meaning: str


def sections(text: str) -> dict[str, str]:
    """The parts of a document by their second and third level headings, without the headings."""
    found: dict[str, str] = {}
    heading, lines, is_code = "", [], False
    for line in [*text.splitlines(), "## "]:
        is_code ^= line.startswith("```")
        if not is_code and re.match(r"##+ ", line):
            found[heading] = "\n".join(lines).strip("\n")
            heading, lines = line.lstrip("#").strip(), []
        else:
            lines.append(line)
    return found


def cells(line: str) -> list[str]:
    """The cells of a table's row."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def tables(text: str) -> Iterator[list[list[str]]]:
    """The tables of a text: their rows, the first one with the titles."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            if not re.fullmatch(r"[|\s:-]+", line):
                rows.append(cells(line))
        elif rows:
            yield rows
            rows = []


def key_rows(text: str) -> list[Row]:
    """What the tables with the columns key, default and meaning say; a row that names several keys stands for each of them."""
    found = []
    for titles, *rows in tables(text):
        if titles[0] not in ("key", "key of `[run]`") or titles[-1] != "meaning":
            continue
        for row in rows:
            names, systems = re.findall(r"`([^`]+)`", row[0]), re.search(r"\(([a-z0-9, ]+)\)\s*$", row[0])
            of = tuple(systems[1].split(", ")) if systems else ()
            found += [Row(name, of, row[1] if len(row) > 2 else "", row[-1]) for name in names]
    return found


def type_aliases(source: str) -> dict[str, str]:
    """Names of types in a source, and what each stands for."""
    named = [item for item in ast.parse(source).body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
    return {item.target.id: ast.unparse(item.value) for item in named if item.value is not None}


def plan_keys(source: str, aliases: Mapping[str, str] | None = None) -> list[Key]:
    """The keys of all tables of plans, from the source of `fanin.plans` or of its keys of systems, whose comments say which systems have the key
    below them. `aliases` are what names of types stand for."""
    aliases = aliases or {}
    lines = source.splitlines()
    found = []
    for item in ast.parse(source).body:
        if isinstance(item, ast.ClassDef):
            for field in item.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    # Keys of systems stand in a table of their own to Python, and with the job's in plans.
                    of_systems = item.name == "SystemKeys"
                    systems = systems_above(lines, item.lineno, field.lineno) if of_systems else ()
                    table = "Job" if of_systems else item.name.lstrip("_")
                    annotation = ast.unparse(field.annotation)
                    found.append(Key(table, field.target.id, aliases.get(annotation, annotation), systems))
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and len(item.value.args) == 2:
            name, fields = item.value.args
            if isinstance(name, ast.Constant) and isinstance(fields, ast.Dict):
                table = str(name.value).lstrip("_").removesuffix("From")
                for key, value in zip(fields.keys, fields.values, strict=True):
                    found.append(Key(table, str(ast.literal_eval(key)), ast.unparse(value)))
    return found


def systems_above(lines: Sequence[str], first: int, line: int) -> tuple[str, ...]:
    """The systems that the last comment between the two lines names."""
    for text in reversed(lines[first:line]):
        if text.strip().startswith("#"):
            return tuple(re.split(r", | and ", text.strip("# ")))
    return ()


def typed(text: str) -> str:
    """A type as readers of plans know it: the values that may be written."""
    text = re.sub(r"Literal\[([^\]]*)\]", lambda match: match[1].replace("'", '"').replace(", ", " or "), text)
    return text.replace(" | ", " or ").replace("|", "or")


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


class Sources:
    """The files of the repository that pages are made from, read where they are needed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plans_text = (root / "examples" / "README.md").read_text()
        self.plan_sections = sections(self.plans_text)
        self.rows = key_rows(self.plans_text)
        files = [(root / "python" / "fanin" / name).read_text() for name in ("_systems.py", "plans.py")]
        of_systems, of_plans = (plan_keys(source, type_aliases(files[0])) for source in files)
        self.keys = of_plans + of_systems

    def row(self, key: Key) -> Row | None:
        """What the documentation says of a key of a table of plans."""
        if key.table == "Job":
            candidates = key_rows(self.plan_sections["`[[jobs]]`"])
            exact = [row for row in candidates if row.name == key.name and set(row.systems) & set(key.systems)]
            return next(iter([*exact, *(row for row in candidates if row.name == key.name)]), None)
        heading = {"Network": "`[network]`", "Traffic": "`[[traffic]]`: background traffic", "Run": "`[[series]]`, `[sweep]`, `[run]`"}
        within = {"Flow": "`[[flows]]`: from one host to another at a given rate", "Limit": "`[[limits]]`: limits of hosts besides their links"}
        part = self.plan_sections.get((heading | within).get(key.table, ""), "")
        return next((row for row in key_rows(part) if row.name == key.name), None)

    def parameters(self, system: str) -> str:
        """The keys that a system has beside those of every job, as a table."""
        rows = []
        for key in self.keys:
            if key.table != "Job" or system not in key.systems:
                continue
            row = next((row for row in self.rows if row.name == key.name and system in row.systems), self.row(key))
            default, meaning = (row.default, row.meaning) if row else ("", "")
            rows.append([f"`{key.name}`", f"`{typed(key.type)}`", default, site_links(meaning)])
        if not rows:
            return "This system has no parameters of its own. The [keys of every job](../reference/keys.md#job) apply."
        head = table(["key", "type", "default", "meaning"], rows)
        return f"Keys of `[[jobs]]` beside those [of every job](../reference/keys.md#job):\n\n{head}"

    def keys_page(self) -> str:
        """Every key of every table of plans, those at the top of a file first."""
        page = ["# Plan keys\n", "Generated from the types in `python/fanin/plans.py` and the tables in [Plans](plans.md), which explains them.\n"]
        named = dict.fromkeys(key.table for key in self.keys)
        for name in [*TABLES, *(name for name in named if name not in TABLES)]:
            keys = [key for key in self.keys if key.table == name]
            rows = []
            for key in keys:
                row = self.row(key)
                of = f" ({', '.join(key.systems)})" if key.systems else ""
                default, meaning = (row.default, site_links(row.meaning, "plans.md")) if row else ("", "")
                rows.append([f"`{key.name}`{of}", f"`{typed(key.type)}`", default, meaning])
            titles = ["key", "type", "default", "meaning"]
            # What stands in the cell of another key has no row of its own.
            if not any(row[3] for row in rows):
                titles, rows = titles[:2], [row[:2] for row in rows]
            where = f"The table `{TABLES[name]}`.\n\n" if name in TABLES else ""
            page.append(f"## {name}\n\n{where}{table(titles, rows)}\n")
        return "\n".join(page)

    def results_page(self) -> str:
        """The columns of results, as the documentation of plans has them."""
        body = self.plan_sections["Results"]
        return f"# Columns of results\n\nGenerated from [Plans](plans.md#results).\n\n{site_links(body)}\n"

    def metrics_page(self) -> str:
        """Every metric of every kind of switch, as the pages about them have them; tests hold those against the program."""
        page = ["# Metrics\n", "Generated from the pages of the switches, which say how to serve metrics and what to derive from them.\n"]
        for name, title in METRICS.items():
            rows: list[list[str]] = []
            for titles, *body in tables((self.root / "docs" / f"{name}.md").read_text()):
                labels = re.findall(r"`([a-z_]+)`", titles[0])
                found = [row for row in body if row[0].startswith(("`fanin_", "`process_"))]
                rows += [[row[0], row[1].replace("](#", f"]({name}.md#"), ", ".join(f"`{label}`" for label in labels)] for row in found]
            page.append(f"## {title}\n\nFrom [{title}]({name}.md#metrics).\n\n{table(['metric', 'meaning', 'labels'], rows)}\n")
        return "\n".join(page)

    def claims(self, system: str, paper: str | None = None) -> str:
        """What the paper that describes or measures a system says, and what came out; without one, where the system runs as a baseline."""
        if paper is None:
            where = [f"[{figure.parent.name} {figure.name}](../papers/{figure.parent.name}/{figure.name}.md)" for figure in self.figures_with(system)]
            listed = f"It runs as a baseline in {', '.join(where)}." if where else "No other figure runs it either."
            return f"No figures of this system's own paper are reproduced yet. {listed}"
        rows, counts = [], Counter[str]()
        by_construction = 0
        for claims in sorted((self.root / "experiments" / paper).glob("*/claims.toml")):
            figure = claims.parent.name
            for row, verdict, is_consistency in claim_rows(claims):
                rows.append([f"[{figure}](../papers/{paper}/{figure}.md)", *row])
                by_construction += is_consistency
                counts[verdict] += not is_consistency
        counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
        titles = ["figure", "what the paper says", "paper", "measured", "95 % interval", "verdict"]
        apart = f"; {by_construction} more could not fail by construction and count apart" if by_construction else ""
        rules = "The [rules of verdicts](../papers/index.md#verdicts) say what the words mean; each figure's page has its choices and causes."
        return f"Claims of the paper: {counted}{apart}. {rules}\n\n{table(titles, rows)}"

    def figures_with(self, system: str) -> list[Path]:
        """The figures whose plans run a system, as folders."""
        named = re.compile(rf'system"?\s*=\s*"{system}"')
        plans = sorted((self.root / "experiments").glob("*/*/plan.toml"))
        return [plan.parent for plan in plans if named.search(plan.read_text()) and plan.with_name("README.md").exists()]

    def clauses(self, system: str) -> str:
        """How many clauses of a system's description are traced to code and tests."""
        rows = tomllib.loads((self.root / "docs" / "traceability" / f"{system}.toml").read_text())["row"]
        tested = sum(1 for row in rows if row.get("test"))
        return f"[Traceability](../traceability.md) lists {len(rows)} clauses of its description; {tested} name the test that shows them."

    def systems(self) -> list[str]:
        """All systems that have a page, in the order of the README's table; what the table has not comes last."""
        listed = re.findall(r"^\| (`.*?) \|", sections((self.root / "README.md").read_text())["Systems"], re.MULTILINE)
        order = re.findall(r"`([a-z0-9]+)`", " ".join(listed))
        pages = {page.stem for page in (self.root / "docs" / "systems").glob("*.md")} - {"index"}
        return [name for name in order if name in pages] + sorted(pages - set(order))

    def systems_table(self) -> str:
        """The table of systems in the README, with links to their pages."""
        part = sections((self.root / "README.md").read_text())["Systems"]
        titles, *rows = next(tables(part))
        linked = [[re.sub(r"`([a-z0-9]+)`", r"[`\1`](\1.md)", row[0]), *row[1:]] for row in rows]
        return table(titles, linked).replace("](docs/", "](../")


def site_links(text: str, plans: str = "../../examples/README.md") -> str:
    """Links of the documentation of plans, as seen from a page two folders below the root."""
    text = text.replace("](#", f"]({plans}#").replace("](../docs/", "](../")
    return re.sub(r"\]\(([a-z]+\.toml|networks/)", r"](../../examples/\1", text)


def claim_rows(claims: Path) -> Iterator[tuple[list[str], str, bool]]:
    """The claims of a figure with what a full run gave: the cells after the figure's name, the verdict, and whether the claim could not fail."""
    recorded = claims.with_name("verdicts.json")
    known = {one["id"]: one for one in json.loads(recorded.read_text())["claims"]} if recorded.exists() else {}
    for claim in tomllib.loads(claims.read_text()).get("claims", []):
        found = known.get(claim["id"], {})
        verdict = found.get("verdict", "cannot be tested here" if "untestable" in claim else "not recorded")
        text = str(claim.get("text", claim["id"])).replace("|", "\\|").replace("\n", " ")
        cells_of = [text, readme_tables.number(claim.get("paper")), readme_tables.number(found.get("measured"))]
        yield [*cells_of, interval(found.get("interval")), verdict], verdict, claim.get("class") == "consistency"


def interval(value: object) -> str:
    """An interval, or those between neighbours of an order."""
    if not isinstance(value, list) or not value:
        return "-"
    if isinstance(value[0], list):
        return ", ".join(interval(one) for one in value)
    return f"{readme_tables.number(value[0])} to {readme_tables.number(value[1])}"


def helper_of(program: Path) -> Callable[[Sequence[str]], str]:
    """What the program says of itself, by command."""

    def said(command: Sequence[str]) -> str:
        done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
        return done.stdout

    return said


def commands_in(text: str) -> list[str]:
    """The subcommands that a help text lists, `help` itself left out."""
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    found = re.findall(r"^  ([a-z0-9-]+)(?:\s|$)", listed[1], re.MULTILINE) if listed else []
    return [name for name in found if name != "help"]


def cli_page(said: Callable[[Sequence[str]], str], program: str = "fanin") -> str:
    """Every command with its options, in the program's own words."""
    page = ["# Command line\n", "Generated from `--help` of each command.\n"]
    waiting: list[list[str]] = [[]]
    while waiting:
        command = waiting.pop(0)
        text = said(command)
        heading = "#" * min(2 + max(len(command) - 1, 0), 4)
        page.append(f"{heading} {' '.join([program, *command])}\n\n```text\n{text.strip()}\n```\n")
        waiting = [[*command, name] for name in commands_in(text)] + waiting
    return "\n".join(page)
