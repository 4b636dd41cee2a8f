"""The examples of the documentation: which there are, which test runs each of them, and which nobody runs, with the reason.

Blocks of shell commands that no other test runs are run here, by `scripts/docs.py`. Python 3.11's standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Which test runs the blocks of which page.
REGISTER = ROOT / "docs" / "examples.toml"
#: What a reader may copy into a shell, a Python program or a plan. Blocks in other languages are output, or compiled by rustdoc.
LANGUAGES = {"sh": "shell", "bash": "shell", "console": "shell", "shell": "shell", "python": "python", "toml": "toml"}
COMMAND = re.compile(
    r"(\$ )?([A-Z_]+=\S+ )*(fanin|make|pip|cargo|torchrun|tshark|python3?|cp|rustup|target/\S+|scripts/\S+|examples/\S+\.sh)( |$)"
)
TABLE = re.compile(r"\[\[?[a-z_.]+\]\]?|[a-z_]+ = ")
MARK = re.compile(r"<!-- not run: (.+) -->")


@dataclass(frozen=True)
class Block:
    """An example."""

    page: str
    line: int
    #: Shell, Python or TOML.
    kind: str
    #: Between backquotes, or set in by four spaces.
    is_fenced: bool
    text: str
    #: Why nothing runs it; None where something does.
    reason: str | None


def pages(root: Path = ROOT) -> list[Path]:
    """The documents that have examples. Experiments are records: their commands were run to make them."""
    named = ["README.md", "CONTRIBUTING.md", "examples/README.md", "experiments/README.md", "crates/check/README.md"]
    return [*(root / name for name in named), *sorted((root / "docs").rglob("*.md"))]


def blocks(page: str, text: str) -> Iterator[Block]:
    """The examples of a page."""
    lines = text.splitlines()
    index, last = 0, ""
    while index < len(lines):
        line = lines[index]
        fence = re.match(r"```(\S*)$", line)
        begin = index
        if fence:
            end = next(number for number in range(index + 1, len(lines)) if lines[number].startswith("```"))
            body, index, kind = lines[index + 1 : end], end + 1, LANGUAGES.get(fence[1])
        elif line.startswith("    ") and (begin == 0 or not lines[begin - 1].strip()):
            end = next(
                (number for number in range(index, len(lines)) if lines[number].strip() and not lines[number].startswith("    ")),
                len(lines),
            )
            body, index = [inner[4:] for inner in lines[index:end]], end
            kind = "shell" if COMMAND.match(body[0]) else "toml" if TABLE.match(body[0]) else None
        else:
            last = line if line.strip() else last
            index += 1
            continue
        if kind is not None:
            mark = MARK.fullmatch(last.strip())
            yield Block(page, begin + 1, kind, fence is not None, "\n".join(body) + "\n", mark[1] if mark else None)
        last = ""


def idle_marks(page: str, text: str) -> list[str]:
    """Marks that belong to no example, as below one: what they were meant for runs all the same."""
    marks = [number for number, line in enumerate(text.splitlines(), 1) if MARK.fullmatch(line.strip())]
    begins = {block.line: block.reason for block in blocks(page, text)}

    def is_idle(mark: int) -> bool:
        following = min((line for line in begins if line > mark), default=None)
        between = text.splitlines()[mark : following - 1] if following is not None else ["nothing follows"]
        return any(line.strip() for line in between)

    return [f"{page}:{mark}: no example follows this mark: it stands above the one that nothing runs" for mark in marks if is_idle(mark)]


def all_blocks(root: Path = ROOT) -> list[Block]:
    """The examples of all pages."""
    return [block for path in pages(root) for block in blocks(path.relative_to(root).as_posix(), path.read_text())]


def registered(register: Path = REGISTER) -> dict[tuple[str, str], Mapping[str, object]]:
    """What other tests run, by page and kind."""
    return {(entry["page"], entry["kind"]): entry for entry in tomllib.loads(register.read_text())["tested"]}


def runnable(found: list[Block], known: Mapping[tuple[str, str], object]) -> list[Block]:
    """The blocks that are run here: those that no other test runs and that are not marked."""
    return [block for block in found if block.reason is None and (block.page, block.kind) not in known]


def problems(found: list[Block], known: Mapping[tuple[str, str], Mapping[str, object]], root: Path = ROOT) -> list[str]:
    """What is wrong with the register: counts that are others, and tests that do not read the page."""
    there = [path for path in pages(root) if path.exists()]
    wrong = [mark for path in there for mark in idle_marks(path.relative_to(root).as_posix(), path.read_text())]
    counts = Counter((block.page, block.kind) for block in found if block.reason is None)
    for (page, kind), entry in known.items():
        if counts[page, kind] != entry["count"]:
            wrong.append(f"{page}: {counts[page, kind]} unmarked examples in {kind}, and docs/examples.toml has {entry['count']}")
        test = root / str(entry["test"])
        if not test.exists() or Path(page).name not in test.read_text():
            wrong.append(f"docs/examples.toml: {entry['test']} does not read {page}")
    for block in runnable(found, known):
        if block.kind == "python" or (block.kind == "toml" and not block.is_fenced):
            wrong.append(
                f"{block.page}:{block.line}: nothing runs this {block.kind}: register its test, or mark it `<!-- not run: REASON -->`"
            )
    return wrong


def run(fanin: Path) -> int:
    """Runs what no other test runs, each block from the repository's root; returns how many failed. Plans are checked."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        # `fanin` is this program, and what examples write below `out` stays in the folder.
        (Path(folder) / "fanin").symlink_to(fanin)
        for name in ("docs", "examples", "experiments", "scripts"):
            (Path(folder) / name).symlink_to(ROOT / name)
        environ = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        for block in runnable(all_blocks(), registered()):
            plan = Path(folder) / "example.toml"
            plan.write_text(block.text)
            command = block.text if block.kind == "shell" else f"fanin sim {plan} --check"
            script = "\n".join(line.removeprefix("$ ") for line in command.splitlines())
            done = subprocess.run(
                ["bash", "-euc", script], cwd=folder, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
            )
            print(f"{'ran' if done.returncode == 0 else 'failed'}: {block.page}:{block.line}", flush=True)
            if done.returncode != 0:
                failed += 1
                print(f"{script}\n{done.stdout}{done.stderr}")
    return failed
