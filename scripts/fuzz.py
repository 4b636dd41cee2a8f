#!/usr/bin/env python3
"""Fuzzes what reads bytes of others, and sequences of operations: libFuzzer looks for inputs that reach code which none has reached before.

Usage: fuzz.py [--list] [--seconds N] [--jobs N] [--sanitizer NAME] [TARGET ...]

A target is a test of bolero, which ends in `_fuzzed`. An ordinary `cargo test` runs each over its corpus, the files in
`__fuzz__/TARGET/corpus` beside the source. Here each is built with what counts branches and with AddressSanitizer, and runs so long; then the
corpus is made as small as it can be without reaching less. What ends a target goes to `__fuzz__/TARGET/crashes`, from where an ordinary
`cargo test` reads it too, until it is mended. TARGETs choose by what is in `CRATE PROGRAM NAME`. Needs a C++ compiler. Exits with 1 if a
target has a finding. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "target" / "fuzz"
#: How a target is written in a source; macros make some of them.
FUZZED = re.compile(r"^([ \t]*)(?:fn (\w+_fuzzed)\(\)|(\w+_fuzzed)(?=,))", re.MULTILINE)
#: A module inside of a file, which ends with the file or where the next one begins.
MODULE = re.compile(r"^mod (\w+) \{", re.MULTILINE)
#: What bolero's engine for libFuzzer is built with.
COVERAGE = (
    "--cfg=fuzzing",
    "--cfg=fuzzing_libfuzzer",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
)
#: Built by itself, with its features: the compiler of custom operators takes longer to build than all else, and nothing else here needs it.
ALONE = frozenset({"fanin-operator"})
#: The longest input in bytes; that of an ordinary test too.
BYTES_MAX = 4096
#: What a corpus may take in the repository: its smallest inputs are kept.
CORPUS_BYTES_MAX = 24 << 10
#: An input that takes longer, or more memory, is a finding.
SECONDS_MAX = 10
MEMORY_MIB_MAX = 2048


@dataclass(frozen=True)
class Target:
    """A test that a fuzzer drives."""

    crate: str
    #: The test program; that of the crate's own unit tests where it is empty.
    program: str
    #: As libtest knows it.
    name: str
    #: The folder of its source.
    folder: Path

    @property
    def home(self) -> Path:
        """Where bolero looks for its inputs."""
        return self.folder / "__fuzz__" / self.name.replace("::", "__")

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.crate} {self.program or 'unit'} {self.name}"


def module(file: Path, sources: Path) -> str:
    """The path of the module in a file of a crate's sources."""
    parts = file.relative_to(sources).with_suffix("").parts
    return "::".join(part for part in parts if part not in ("lib", "mod"))


def in_file(crate: str, home: Path, file: Path) -> list[Target]:
    """The targets of a source file of a crate."""
    text = file.read_text()
    unit = file.relative_to(home).parts[0] == "src"
    outside = module(file, home / "src") if unit else ""
    found = []
    for match in FUZZED.finditer(text) if "bolero::check!" in text else ():
        inner = MODULE.findall(text[: match.start()]) if match[1] and match[2] else []
        path = [part for part in (outside, *inner[-1:], match[2] or match[3]) if part]
        found.append(Target(crate, "" if unit else file.stem, "::".join(path), file.parent))
    return found


def targets(root: Path) -> list[Target]:
    """All targets of the workspace, by name."""
    found = []
    for manifest in sorted(root.glob("crates/*/Cargo.toml")):
        crate = re.search(r'^name = "([^"]+)"', manifest.read_text(), re.MULTILINE)
        files = sorted([*manifest.parent.glob("src/**/*.rs"), *manifest.parent.glob("tests/*.rs"), *manifest.parent.glob("fuzz/*.rs")])
        found += [target for file in files if crate for target in in_file(crate[1], manifest.parent, file)]
    return sorted(found, key=lambda target: target.title)


def chosen(known: Iterable[Target], words: Sequence[str]) -> list[Target]:
    """The targets with one of these in their titles; all where none is given."""
    return [target for target in known if not words or any(word in target.title for word in words)]


def environment(sanitizer: str) -> dict[str, str]:
    """What builds are told. Sanitizers and coverage are no part of a stable compiler, and are allowed for this build only."""
    flags = [*COVERAGE, *([] if sanitizer == "none" else [f"-Zsanitizer={sanitizer}"])]
    return {**os.environ, "RUSTFLAGS": " ".join(flags), "RUSTC_BOOTSTRAP": "1", "BOLERO_FUZZER": "libfuzzer"}


def host() -> str:
    """The machine's target triple: named, so that what runs while building is built without a sanitizer."""
    said = subprocess.run(["rustc", "-vV"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return next(line.split()[1] for line in said.splitlines() if line.startswith("host:"))


def commands(wanted: Sequence[Target]) -> list[list[str]]:
    """What builds the test programs of these targets: those of several crates at once, so that what they share is built once."""
    front = ["cargo", "test", "--locked", "--no-run", "--profile", "fuzz", "--target", host(), "--target-dir", str(BUILD)]
    front += ["--message-format", "json-render-diagnostics"]
    found = []
    for alone in (False, True):
        group = [target for target in wanted if (target.crate in ALONE) == alone]
        features = [] if alone else ["--no-default-features"]
        programs, units = ({target.program for target in group if target.program}, {target.crate for target in group if not target.program})
        for kind, crates in ((programs, {target.crate for target in group if target.program}), ({""} if units else set(), units)):
            if kind:
                packages = [word for crate in sorted(crates) for word in ("--package", crate)]
                choice = [word for program in sorted(kind) for word in (("--test", program) if program else ("--lib",))]
                found.append([*front, *features, *packages, *choice])
    return found


def build(wanted: Sequence[Target], variables: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Builds the test programs of these targets: a file for each (crate, program)."""
    built: dict[tuple[str, str], str] = {}
    for command in commands(wanted):
        done = subprocess.run(command, cwd=ROOT, env=dict(variables), stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.returncode)
        for message in (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")):
            if message.get("executable") and message["profile"]["test"]:
                kind, name = message["target"]["kind"], message["target"]["name"]
                crate = f"fanin-{Path(message['manifest_path']).parent.name}"
                built[crate, name if kind == ["test"] else ""] = message["executable"]
    return built


def drive(program: str, target: Target, arguments: Sequence[str]) -> tuple[int, str]:
    """Has libFuzzer do something with a target; its exit code and what it said."""
    variables = {**os.environ, "BOLERO_TEST_NAME": target.name, "BOLERO_LIBTEST_HARNESS": "1", "BOLERO_LIBFUZZER_ARGS": " ".join(arguments)}
    # Leaks are looked for by libFuzzer itself, which takes what a test keeps for good for one.
    variables["ASAN_OPTIONS"] = "detect_leaks=0:" + variables.get("ASAN_OPTIONS", "")
    command = [program, target.name, "--exact", "--nocapture", "--quiet", "--test-threads", "1"]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace")


def shrink(program: str, target: Target, inputs: Path) -> None:
    """Puts into the repository's corpus the fewest of these inputs that reach what all of them reach, as far as there is room."""
    with tempfile.TemporaryDirectory() as folder:
        code, said = drive(program, target, ["-set_cover_merge=1", "-detect_leaks=0", f"-max_len={BYTES_MAX}", folder, str(inputs)])
        kept = sorted((file for file in Path(folder).iterdir()), key=lambda file: (file.stat().st_size, file.name))
        if code != 0 or not kept:
            raise RuntimeError(f"{target.title}: its corpus cannot be made smaller (exit code {code}):\n{said[-2000:]}")
        corpus, room = target.home / "corpus", CORPUS_BYTES_MAX
        shutil.rmtree(corpus, ignore_errors=True)
        corpus.mkdir(parents=True)
        for file in kept:
            room -= file.stat().st_size
            if room >= 0:
                shutil.copyfile(file, corpus / file.name)


def executions(said: str) -> int:
    """How many inputs libFuzzer has tried, by its words."""
    counts = [int(count) for count in re.findall(r"^#(\d+)\s", said, re.MULTILINE)]
    counts += [int(count) for count in re.findall(r"^stat::number_of_executed_units:\s*(\d+)", said, re.MULTILINE)]
    return max(counts, default=0)


def fuzz(program: str, target: Target, seconds: int) -> bool:
    """Runs a target for so long; whether it has found nothing."""
    corpus, crashes = target.home / "corpus", target.home / "crashes"
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(exist_ok=True)
    # All that was ever found here, from where the next run goes on; the repository has the part that is needed.
    found = BUILD / "inputs" / target.crate / target.name.replace("::", "__")
    found.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    limits = [f"-timeout={SECONDS_MAX}", f"-rss_limit_mb={MEMORY_MIB_MAX}", f"-max_len={BYTES_MAX}", "-detect_leaks=0"]
    paths = [str(found), str(corpus), f"-artifact_prefix={crashes}/"]
    code, said = drive(program, target, [*paths, *limits, f"-max_total_time={seconds}", "-print_final_stats=1", "-use_value_profile=1"])
    took = time.monotonic() - begin
    report = f"{target.title}: {executions(said):,} inputs in {took:.0f} s"
    if code == 0 and executions(said) == 0:
        raise RuntimeError(f"{target.title}: nothing was run:\n{said[-2000:]}")
    if code != 0:
        print(f"FOUND: {report}\n{said[-6000:]}", flush=True)
        print(f"again: cargo test --package {target.crate} {target.name}  (reads {crashes.relative_to(ROOT)})", flush=True)
        return False
    crashes.rmdir()
    shutil.copytree(corpus, found, dirs_exist_ok=True)
    shrink(program, target, found)
    kept = list(corpus.iterdir())
    size = sum(file.stat().st_size for file in kept)
    print(f"nothing found: {report}; its corpus has {len(kept)} inputs of {size:,} bytes", flush=True)
    return True


def parsed(arguments: Sequence[str], known: Sequence[Target]) -> tuple[argparse.Namespace, list[Target]]:
    """What is wanted; ends the program where that cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--list", action="store_true", help="only list the targets")
    parser.add_argument("--seconds", type=int, default=180, metavar="N", help="how long each is run (180)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time (1)")
    parser.add_argument("--sanitizer", choices=("address", "none"), default="address", help="what looks after memory (address)")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="only targets with one of these in `CRATE PROGRAM NAME`")
    given = parser.parse_args(arguments)
    for name in ("seconds", "jobs"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: {getattr(given, name)}: expected 1 or more")
    wanted = chosen(known, given.targets)
    if not wanted:
        parser.error(f"no target has {' or '.join(given.targets)} in its name; there are {', '.join(target.title for target in known)}")
    return given, wanted


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    given, wanted = parsed(arguments, targets(ROOT))
    if given.list:
        print("\n".join(target.title for target in wanted))
        return 0
    programs = build(wanted, environment(given.sanitizer))
    with ThreadPoolExecutor(max_workers=given.jobs) as pool:
        good = list(pool.map(lambda target: fuzz(programs[target.crate, target.program], target, given.seconds), wanted))
    print(f"{len(good)} targets, {good.count(False)} with findings")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
