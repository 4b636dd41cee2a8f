#!/usr/bin/env python3
"""Runs the crates' tests as `cargo test` does, but several test programs at a time: many of them wait for processes and timeouts, which
leaves cores to those that compute.

Usage: rust_tests.py [--jobs N] [WORD ...] [-- ARGUMENT ...]

WORDs choose test programs and documentation tests by what is in their names (`fanin-comm`, `verdicts`); ARGUMENTs go to the test programs.
What a program prints comes when it is over, and only where a test fails. A program that leaves a process behind
has failed, as has a run that leaves shared memory or a network namespace. Exits with 1 if any fails. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import leftovers

ROOT = Path(__file__).resolve().parent.parent
#: How long each test program took when it ran last, in seconds.
RECORD = ROOT / "target" / "rust_tests.json"
#: The longest, where there is no record yet.
LONG = ("fanin verdicts", "fanin-check all", "fanin testbed", "fanin-comm killed", "documentation")
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """A test program, or the documentation tests of all crates."""

    name: str
    command: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class Outcome:
    """What became of one."""

    code: int
    output: str
    elapsed_s: float

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many tests passed, failed and were ignored."""
        found = [tuple(map(int, match)) for match in RESULT.findall(self.output)]
        return sum(one[0] for one in found), sum(one[1] for one in found), sum(one[2] for one in found)


def programs(messages: str) -> list[Program]:
    """The test programs that cargo has built, by its messages, each of which is a line of JSON."""
    found = []
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            package = re.split(r"[#/]", message["package_id"].rsplit("@", 1)[0])[-1]
            crate = package if package.startswith("fanin") else f"fanin-{folder.name}"
            kind = "unit" if message["target"]["kind"] != ["test"] else message["target"]["name"]
            found.append(Program(f"{crate} {kind}", (message["executable"],), folder))
    return found


def longest_first(chosen: Sequence[Program], record: Mapping[str, float]) -> list[Program]:
    """So that nothing long begins when all else is over; what was never timed comes before what was, the known long ones first."""
    known = {name: -float(place) for place, name in enumerate(LONG)}
    return sorted(chosen, key=lambda one: (one.name in record, -record.get(one.name, 0.0), -known.get(one.name, -float(len(LONG)))))


def environment() -> dict[str, str]:
    """What cargo sets for the programs that it runs."""
    libraries = subprocess.run(["rustc", "--print", "target-libdir"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    paths = [str(ROOT / "target" / "debug" / "deps"), libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}


def run(program: Program, arguments: Sequence[str], variables: Mapping[str, str]) -> Outcome:
    """Runs one to its end; what it leaves behind is ended, and makes it one that has failed."""
    begin, mark = time.monotonic(), f"{os.getpid()}-{program.name}"
    # A file and no pipe: nobody waits for the end of what a process that was left behind may yet print.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [*program.command, *arguments],
            cwd=program.folder,
            env={**leftovers.marked(variables, mark), "CARGO_MANIFEST_DIR": str(program.folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        elapsed_s = time.monotonic() - begin
        left = leftovers.after(mark)
        output.seek(0)
        said = "\n".join([output.read().decode(errors="replace"), *left])
    return Outcome(done.returncode or int(bool(left)), said, elapsed_s)


def run_all(chosen: Sequence[Program], arguments: Sequence[str], jobs: int) -> dict[str, Outcome]:
    """Runs all, so many at a time, and says of each what became of it."""
    variables, saying = environment(), threading.Lock()

    def one(program: Program) -> tuple[str, Outcome]:
        outcome = run(program, arguments, variables)
        passed, failed, ignored = outcome.counts
        with saying:
            if outcome.code != 0:
                print(outcome.output, flush=True)
            word = "passed" if outcome.code == 0 else f"FAILED (exit code {outcome.code})"
            print(f"{word}: {program.name}: {passed} passed, {failed} failed, {ignored} ignored, {outcome.elapsed_s:.1f} s", flush=True)
        return program.name, outcome

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return dict(pool.map(one, chosen))


def build() -> list[Program]:
    """Builds all test programs; ends this program where that fails."""
    command = ["cargo", "test", "--locked", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    documentation = Program("documentation", ("cargo", "test", "--locked", "--workspace", "--no-fail-fast", "--doc", "--"), ROOT)
    return [documentation, *programs(done.stdout)]


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    own, rest = (arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]) if "--" in arguments else (arguments, [])
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="run so many test programs at a time; 2 if it is not given")
    parser.add_argument("words", nargs="*", metavar="WORD", help="run only what has one of these in its name")
    options = parser.parse_args(own)
    if options.jobs < 1:
        parser.error(f"--jobs: {options.jobs}: expected 1 or more")
    known = build()
    chosen = [one for one in known if not options.words or any(word in one.name for word in options.words)]
    if not chosen:
        parser.error(f"no test program has {' or '.join(options.words)} in its name; there are {', '.join(one.name for one in known)}")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    begin, names = time.monotonic(), leftovers.names()
    outcomes = run_all(longest_first(chosen, record), rest, options.jobs)
    if not rest:
        RECORD.write_text(json.dumps({**record, **{name: round(one.elapsed_s, 1) for name, one in outcomes.items()}}, indent=1) + "\n")
    counts = [sum(column) for column in zip(*(one.counts for one in outcomes.values()), strict=True)]
    print(f"{counts[0]} passed, {counts[1]} failed, {counts[2]} ignored in {time.monotonic() - begin:.0f} s")
    failed = [name for name, one in outcomes.items() if one.code != 0]
    failed += [f"left behind: {name}" for name in sorted(leftovers.names() - names)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
