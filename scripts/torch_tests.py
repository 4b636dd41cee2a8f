#!/usr/bin/env python3
"""Tests the PyTorch backend: makes an environment in target/torch, installs PyTorch (5 GB) and Fanin there, checks style and types,
runs pytest.

Usage: torch_tests.py [--fabric] [PYTEST-ARGUMENT ...]

With --fabric it runs what takes long instead: PyTorch's own tests over a fabric of four switches, and training over one by each of several
systems, in each of several troubles.

With TORCH_VERSION=2.14.0 in the environment it does so for that PyTorch, in target/torch-2.14.0. Then types are not checked, and PyTorch's
own tests are left out, since the list of those that are skipped is for one version.

Python's standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: PyTorch's version where it is another than the requirements have.
OTHER = os.environ.get("TORCH_VERSION", "")
ENVIRONMENT = ROOT / "target" / (f"torch-{OTHER}" if OTHER else "torch")
TESTS = ROOT / "python" / "tests" / "torch"
REQUIREMENTS = TESTS / "requirements.txt"
#: A copy of the requirements that are installed already.
INSTALLED = ENVIRONMENT / "requirements.txt"
#: PyTorch with all that comes with it, while it is being installed.
ROOM_BYTES = 12 << 30
#: Tests that start programs which train, and take as long as all others together: these two halves run at the same time.
TRAINING = [TESTS / name for name in ("test_examples.py", "test_fabric.py", "test_sparse.py", "test_training.py")]


def obstacle() -> str | None:
    """Why PyTorch cannot be used here, or None if it can. Installs it where that is possible."""
    wanted = requirements()
    if INSTALLED.exists() and INSTALLED.read_text() == wanted:
        return None
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    free = shutil.disk_usage(ENVIRONMENT.parent).free
    if free < ROOM_BYTES:
        return f"PyTorch needs {ROOM_BYTES >> 30} GiB of disk, and {free >> 30} GiB are free"
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    asked = ENVIRONMENT / "asked.txt"
    asked.write_text(wanted)
    command = [program("python"), "-m", "pip", "install", "--quiet", "-r", str(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"PyTorch cannot be installed: {done.stderr.strip().splitlines()[-1:]}"
    asked.replace(INSTALLED)
    return None


def requirements() -> str:
    """What is installed, in the form of pip's files."""
    text = REQUIREMENTS.read_text()
    return re.sub(r"(?m)^torch==.*$", f"torch=={OTHER}", text) if OTHER else text


def program(name: str) -> str:
    """A program of the environment."""
    return str(ENVIRONMENT / "bin" / name)


def pytest(paths: Sequence[Path], *arguments: str) -> list[str]:
    """The command that runs tests."""
    return [program("python"), "-m", "pytest", "-q", "-rs", "--durations=10", "-p", "no:cacheprovider", *map(str, paths), *arguments]


def together(commands: Sequence[Sequence[str]], environ: Mapping[str, str]) -> int:
    """Runs commands at the same time; what each printed comes when all before it have ended. Returns the first exit code that is not 0."""
    processes = []
    for command in commands:
        print("running:", " ".join(command), flush=True)
        output = tempfile.TemporaryFile()
        process = subprocess.Popen(command, cwd=ENVIRONMENT, env=environ, stdout=output, stderr=subprocess.STDOUT)
        processes.append((process, output))
    codes = []
    for process, output in processes:
        codes.append(process.wait())
        with output:
            output.seek(0)
            print(output.read().decode(errors="replace"), flush=True)
    return next((code for code in codes if code != 0), 0)


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
    ]
    if OTHER:
        commands.pop()
    for command in commands:
        print("running:", " ".join(map(str, command)), flush=True)
        # Not from the root of the repository, where Python would find the package without its native module.
        code = subprocess.run(command, cwd=ENVIRONMENT, env=environ, check=False).returncode
        if code != 0:
            return code
    if list(arguments[:1]) == ["--fabric"]:
        upstream = pytest([TESTS / "test_upstream.py"], "--over", "fabric", *arguments[1:])
        matrix = pytest([TESTS / "fabric_matrix.py"], *arguments[1:])
        # One after the other: switches are given up where nothing moves for seconds.
        return together([upstream], environ) or together([matrix], environ)
    if arguments:
        return subprocess.run(pytest([TESTS], *arguments), cwd=ENVIRONMENT, env=environ, check=False).returncode
    left_out = [TESTS / "test_upstream.py"] if OTHER else []
    others = [path for path in sorted(TESTS.glob("test_*.py")) if path not in [*TRAINING, *left_out]]
    return together([pytest(others), pytest(TRAINING)], environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
