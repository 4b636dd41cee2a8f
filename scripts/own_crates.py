#!/usr/bin/env python3
"""Tests the crates outside of the workspace (examples/own-*), and runs their programs as their pages say, in small.

Usage: own_crates.py

They are built without optimisation into target/own. Python's standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

#: What each program runs after its tests; `OUT` is an empty folder.
RUNS: dict[str, list[list[str]]] = {
    "own-balancer": [["sim", "plan.toml", "--set", "jobs.0.message=1MiB", "--set", "run.repetitions=1", "--out", "OUT"]],
    "own-system": [
        ["sim", "plan.toml", "--set", "jobs.0.message=256KiB", "--out", "OUT"],
        ["check", "racks", "--seeds", "20"],
        ["trace", "plan.toml", "--packets", "200", "--out", "OUT/racks.pcapng"],
        ["testbed", "../testbed/fabric.toml", "workload.toml"],
    ],
    "own-traffic": [["sim", "plan.toml", "--set", "jobs.0.message=1MiB", "--set", "run.repetitions=1", "--out", "OUT"]],
}


def crates() -> list[Path]:
    """The crates, all of which have a lock file of their own."""
    return sorted(path.parent for path in EXAMPLES.glob("own-*/Cargo.toml"))


def target(crate: Path) -> Path:
    """Where cargo builds a crate."""
    metadata = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    done = subprocess.run(metadata, cwd=crate, capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["target_directory"])


def run(command: Sequence[str], crate: Path) -> bool:
    """Runs a command in a crate's folder; says which, and whether it went well."""
    print(f"{crate.name}: {' '.join(command)}", flush=True)
    return subprocess.run(command, cwd=crate, stdout=subprocess.DEVNULL, check=False).returncode == 0


def main() -> int:
    """0 if all went well."""
    failed = []
    for crate in crates():
        if not run(["cargo", "test", "--locked", "--quiet"], crate) or not run(["cargo", "build", "--locked", "--quiet"], crate):
            failed.append(f"{crate.name}: tests")
            continue
        program = os.fspath(target(crate) / "debug" / crate.name)
        for arguments in RUNS[crate.name]:
            with tempfile.TemporaryDirectory() as out:
                if not run([program, *(argument.replace("OUT", out) for argument in arguments)], crate):
                    failed.append(f"{crate.name}: {' '.join(arguments)}")
        notebook = EXAMPLES / "notebooks" / f"{crate.name}.ipynb"
        if notebook.exists():
            os.environ["FANIN_RACKS"] = program
            if not run([sys.executable, os.fspath(ROOT / "scripts" / "notebooks.py"), os.fspath(notebook)], crate):
                failed.append(f"{crate.name}: {notebook.name}")
    for what in failed:
        print(f"failed: {what}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
