#!/usr/bin/env python3
"""Tests the Python package: makes an environment in target/python, installs the package there, checks style, types and stubs, runs pytest.
A step that leaves a process, shared memory or a network namespace behind has failed.

Usage: python_tests.py [PYTEST-ARGUMENT ...]

FANIN_PROFILE names the Cargo profile that the package is built with; `dev` by default, which is built soonest.
Python's standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path

import leftovers

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "target" / "python"
TESTS = ROOT / "python" / "tests"
REQUIREMENTS = TESTS / "requirements.txt"
#: A copy of the requirements that are installed already.
INSTALLED = ENVIRONMENT / "requirements.txt"
CONFIGURATION = str(ROOT / "pyproject.toml")


def program(name: str) -> str:
    """A program of the environment."""
    return str(ENVIRONMENT / "bin" / name)


def prepare() -> None:
    """Makes the environment, where it is not there as it must be."""
    if INSTALLED.exists() and INSTALLED.read_text() == REQUIREMENTS.read_text():
        return
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    run("requirements", [program("python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS)])
    shutil.copy(REQUIREMENTS, INSTALLED)


def run(what: str, command: Sequence[str]) -> None:
    """Runs a step, not from the root of the repository, where Python would find the package without its native module."""
    environ = {"FANIN_PROFILE": "dev", **os.environ, "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    begin = time.monotonic()
    mark, names = f"{os.getpid()}-python-{what}", leftovers.names()
    done = subprocess.run(command, cwd=ENVIRONMENT, env=leftovers.marked(environ, mark), check=False)
    took = time.monotonic() - begin
    left = [*leftovers.after(mark), *(f"left behind: {name}" for name in sorted(leftovers.names() - names))]
    is_good = done.returncode == 0 and not left
    print("\n".join([f"python: {what}: {'ok' if is_good else 'failed'} in {took:.0f} s", *left]), flush=True)
    if not is_good:
        print("  " + " ".join(command), flush=True)
        sys.exit(1)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    if sys.version_info < (3, 11):
        print(f"the tests of the Python package need Python 3.11 (the package itself 3.10), and this is {sys.version.split()[0]}")
        return 1
    prepare()
    sources = [str(ROOT / "python" / "fanin"), str(ROOT / "python" / "build"), str(TESTS)]
    python, pip = program("python"), [program("python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run("style", [program("ruff"), "check", "--quiet", "--config", CONFIGURATION, *sources])
    run("format", [program("ruff"), "format", "--quiet", "--check", "--config", CONFIGURATION, *sources])
    run("install", [*pip, "--no-build-isolation", "--force-reinstall", "--no-deps", str(ROOT)])
    run("types", [python, "-m", "mypy", "--config-file", CONFIGURATION, "-p", "fanin"])
    run("stubs", [python, "-m", "mypy.stubtest", "--mypy-config-file", CONFIGURATION, "fanin._native"])
    run("tests", [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", CONFIGURATION, "--rootdir", str(ROOT), *(arguments or [str(TESTS)])])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
