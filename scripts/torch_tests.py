#!/usr/bin/env python3
"""Tests the PyTorch backend: makes an environment in target/torch, installs PyTorch (5 GB) and Fanin there, checks style and types,
runs pytest.

Usage: torch_tests.py [PYTEST-ARGUMENT ...]

Python's standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "target" / "torch"
TESTS = ROOT / "python" / "tests" / "torch"
REQUIREMENTS = TESTS / "requirements.txt"
#: A copy of the requirements that are installed already.
INSTALLED = ENVIRONMENT / "requirements.txt"
#: PyTorch with all that comes with it, while it is being installed.
ROOM_BYTES = 12 << 30


def obstacle() -> str | None:
    """Why PyTorch cannot be used here, or None if it can. Installs it where that is possible."""
    if INSTALLED.exists() and INSTALLED.read_text() == REQUIREMENTS.read_text():
        return None
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    free = shutil.disk_usage(ENVIRONMENT.parent).free
    if free < ROOM_BYTES:
        return f"PyTorch needs {ROOM_BYTES >> 30} GiB of disk, and {free >> 30} GiB are free"
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    command = [program("python"), "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"PyTorch cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    shutil.copy(REQUIREMENTS, INSTALLED)
    return None


def program(name: str) -> str:
    """A program of the environment."""
    return str(ENVIRONMENT / "bin" / name)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    reason = obstacle()
    if reason is not None:
        print(f"skipped: {reason}")
        return 1
    environ = {
        "FANIN_PROFILE": "dev",
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    sources = [*TESTS.glob("*.py"), *(ROOT / "python" / "fanin" / "torch").glob("*.py")]
    # Named one by one, since the settings leave their folders to this script.
    style = ["--quiet", "--config", ROOT / "pyproject.toml", *sources]
    commands = [
        [program("ruff"), "check", *style],
        [program("ruff"), "format", "--check", *style],
        [program("python"), "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", str(ROOT)],
        [program("python"), "-m", "mypy", "--config-file", str(TESTS / "mypy.ini"), "-p", "fanin.torch"],
        [program("python"), "-m", "pytest", "-q", "-rs", "--durations=10", "-p", "no:cacheprovider", str(TESTS), *arguments],
    ]
    for command in commands:
        print("running:", " ".join(map(str, command)), flush=True)
        # Not from the root of the repository, where Python would find the package without its native module.
        code = subprocess.run(command, cwd=ENVIRONMENT, env=environ, check=False).returncode
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
