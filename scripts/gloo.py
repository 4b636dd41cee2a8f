"""PyTorch's gloo backend: set up in an environment of its own, and run (peers/gloo/allreduce.py). Python's standard library only."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measurement import only_row
from processes import Crew

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "peers" / "gloo" / "allreduce.py"
FOLDER = ROOT / "target" / "peers" / "gloo-venv"
#: That of the PyTorch backend's tests has torch as well, where they have run.
FOLDERS = [ROOT / "target" / "torch", FOLDER]
#: The wheel without CUDA (0.2 GB) is only here; PyPI's works as well, but takes 5 GB of disk.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PORT = 29_611


@functools.cache
def python() -> Path | None:
    """Python of an environment that has torch with gloo, if there is one."""
    probe = "import sys, torch.distributed as d; sys.exit(not d.is_gloo_available())"
    for folder in FOLDERS:
        found = folder / "bin" / "python"
        if found.exists() and subprocess.run([str(found), "-c", probe], capture_output=True, check=False).returncode == 0:
            return found
    return None


def obstacle() -> str | None:
    """Why gloo cannot be used here, or None if it can. Installs torch into a virtual environment below target/."""
    if python() is not None:
        return None
    print(f"installing torch into {FOLDER}, which takes minutes", file=sys.stderr, flush=True)
    made = subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no virtual environment can be made: {made.stderr.strip() or made.stdout.strip()}"
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", "torch", "numpy"]
    for more in (["--retries", "0", "--timeout", "15", "--index-url", CPU_INDEX], []):
        done = subprocess.run([*pip, *more], capture_output=True, text=True, check=False)
        python.cache_clear()
        if done.returncode == 0 and python() is not None:
            return None
    return f"`pip install torch` failed: {done.stderr.strip()[-300:]}"


def run(world: int, size: int, iterations: int, prefixes: Sequence[Sequence[str]], master: str, interface: str, timeout_s: float) -> dict:
    """One measurement; rank r's command is put behind `prefixes[r]`, and all meet at rank 0, whose address is `master`."""
    deadline = time.monotonic() + timeout_s
    with Crew() as crew:
        ranks = []
        for rank in range(world):
            environment = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "MASTER_ADDR": master,
                "MASTER_PORT": str(PORT),
                "GLOO_SOCKET_IFNAME": interface,
            }
            command = [*prefixes[rank], str(python()), str(SOURCE), "--sizes", str(size), "--iterations", str(iterations)]
            ranks.append(crew.start(command, environment))
        texts = [crew.finish(process, deadline) for process in ranks]
    return only_row(texts[0])
