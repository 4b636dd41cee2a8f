#!/usr/bin/env python3
"""Installs a wheel where nothing else is, and runs the program and the package there: a new virtual environment, an empty folder, no Rust and
no compiler on the PATH.

Usage: clean_install.py [--torch] [WHEEL]

Without a wheel it builds one, with the Cargo profile that FANIN_PROFILE names (`release` by default, which is what can simulate in seconds).
With `--torch` it installs PyTorch there as well, without CUDA where that can be had, and trains on two processes. Python's standard library
only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

import torch_tests
from gloo import CPU_INDEX

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

#: What a user of PyTorch types, with this program in the folder.
EXAMPLE = ROOT / "examples" / "train_ddp.py"
TWO_PROCESSES = ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
TORCH_COMMANDS = [
    ([*TWO_PROCESSES, EXAMPLE.name, "--epochs", "2"], "the same parameters on 2 ranks: "),
    ([*TWO_PROCESSES, EXAMPLE.name, "--epochs", "2", "--topk", "0.02"], "the same parameters on 2 ranks: "),
]
#: What the example needs, of all that tests of the backend do.
NEEDED = ("numpy", "scikit-learn", "torch")


def obstacle() -> str | None:
    """Why nothing can be installed with PyTorch here, or None if it can."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return None if free >= torch_tests.ROOM_BYTES else f"PyTorch needs {torch_tests.ROOM_BYTES >> 30} GiB of disk, and {free >> 30} GiB are free"


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


def needed(text: str) -> list[str]:
    """The lines of pip's file that name what the example needs."""
    return [line for line in text.splitlines() if re.split(r"\W*==", line)[0] in NEEDED]


def install_torch(python: Path) -> None:
    """Installs PyTorch of the version that is tested, without CUDA where its index can be reached, and what else the example needs.

    Raises:
        RuntimeError: pip cannot.
    """
    wanted = needed(torch_tests.requirements())
    [torch] = [line for line in wanted if line.startswith("torch==")]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([*pip, torch, "--retries", "0", "--timeout", "15", "--index-url", CPU_INDEX], capture_output=True, check=False)
    # What is there already stays.
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`pip install {' '.join(wanted)}` failed: {done.stderr.strip()[-300:]}")


def check(wheel: Path, folder: Path, with_torch: bool) -> None:
    """Installs the wheel, and runs every command.

    Raises:
        RuntimeError: A command fails or does not say what it must.
    """
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / "bin"
    subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    if with_torch:
        install_torch(scripts / "python")
    path = bare_path(scripts, folder / "bare")
    there = [name for name in COMPILERS if shutil.which(name, path=path)]
    if there:
        raise RuntimeError(f"{', '.join(there)} on the PATH: expected no compiler")
    work = folder / "work"
    work.mkdir()
    environment = {"PATH": path, "HOME": str(folder), "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    commands = list(COMMANDS)
    if with_torch:
        shutil.copy(EXAMPLE, work)
        commands += TORCH_COMMANDS
    for command, expected in commands:
        done = subprocess.run([scripts / command[0], *command[1:]], cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or expected not in done.stdout:
            shown = " ".join(command)
            raise RuntimeError(f"`{shown}` ended with {done.returncode}, expected 0 and {expected!r} in:\n{done.stdout}{done.stderr}")
        print(f"clean install: {' '.join(command)}: ok", flush=True)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--torch", action="store_true", help="install PyTorch as well, and train on two processes")
    parser.add_argument("wheel", type=Path, nargs="?", help="install this wheel; otherwise one is built")
    options = parser.parse_args(arguments)
    reason = obstacle() if options.torch else None
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="fanin-clean-") as name:
        folder = Path(name)
        wheel = options.wheel.resolve() if options.wheel else build(folder)
        try:
            check(wheel, folder, options.torch)
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
