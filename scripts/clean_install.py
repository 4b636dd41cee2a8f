#!/usr/bin/env python3
"""Installs a wheel where nothing else is, and runs the program and the package there: a new virtual environment, an empty folder, no Rust and
no compiler on the PATH.

Usage: clean_install.py [WHEEL]

Without a wheel it builds one, with the Cargo profile that FANIN_PROFILE names (`release` by default, which is what can simulate in seconds).
Python's standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: None of these may be found.
COMPILERS = ["cargo", "rustc", "rustup", "cc", "gcc", "clang"]

#: What a first user types, and what must be in its output.
COMMANDS = [
    (["fanin", "examples"], "quickstart: "),
    (["fanin", "sim", "--example", "quickstart", "--out", "quickstart"], "report: "),
    (["fanin", "repro", "canary", "fig08", "--quick"], "reproduced"),
    (["python", "-m", "fanin", "sim", "--example", "shapes", "--check"], "examples/shapes.toml: "),
    (["python", "-c", "import fanin; print(fanin.repro('canary', 'fig06', quick=True, causes=False))"], "fig06"),
]


def build(folder: Path) -> Path:
    """Builds a wheel as pip does it."""
    environment = {"FANIN_PROFILE": "release", **os.environ}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, env=environment, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def bare_path(scripts: Path, bare: Path) -> str:
    """A PATH of the environment's programs alone, and of a shell's few that need no compiler."""
    bare.mkdir()
    for name in ("sh", "env"):
        found = shutil.which(name)
        if found is not None:
            (bare / name).symlink_to(found)
    return f"{scripts}{os.pathsep}{bare}"


def check(wheel: Path, folder: Path) -> None:
    """Installs the wheel, and runs every command.

    Raises:
        RuntimeError: A command fails or does not say what it must.
    """
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / "bin"
    subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    path = bare_path(scripts, folder / "bare")
    there = [name for name in COMPILERS if shutil.which(name, path=path)]
    if there:
        raise RuntimeError(f"{', '.join(there)} on the PATH: expected no compiler")
    work = folder / "work"
    work.mkdir()
    environment = {"PATH": path, "HOME": str(folder), "TMPDIR": str(folder)}
    for command, expected in COMMANDS:
        done = subprocess.run([scripts / command[0], *command[1:]], cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or expected not in done.stdout:
            shown = " ".join(command)
            raise RuntimeError(f"`{shown}` ended with {done.returncode}, expected 0 and {expected!r} in:\n{done.stdout}{done.stderr}")
        print(f"clean install: {' '.join(command)}: ok", flush=True)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="fanin-clean-") as name:
        folder = Path(name)
        wheel = Path(arguments[0]).resolve() if arguments else build(folder)
        try:
            check(wheel, folder)
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
