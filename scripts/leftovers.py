"""What a program leaves behind when it is over: processes that it has started, directly or not, and named memory and network namespaces.

Processes are known by a variable of their environment, which those that they start inherit, also daemons. Names are those of Fanin: others
on this machine have theirs. Python's standard library only.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

#: The variable; its value is the mark.
MARK = "FANIN_STARTED_BY"
#: Who has been told to end may need so long.
GRACE_S = 5.0
#: Where named things are, and how Fanin's begin.
NAMES = {"shared memory": Path("/dev/shm"), "network namespace": Path("/run/netns")}
PREFIX = "fanin"


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment for a program, by which its processes are found."""
    return {**environment, MARK: mark}


def command(process: Path) -> str:
    """What a process runs; empty where it has ended."""
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def processes(mark: str, proc: Path = Path("/proc")) -> dict[int, str]:
    """Processes with this mark that have not ended, by their ids, with what they run."""
    sought, found = f"{MARK}={mark}".encode(), {}
    for process in proc.glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if sought in variables and int(process.name) != os.getpid() and command(process):
            found[int(process.name)] = command(process)
    return found


def is_left(name: str) -> bool:
    """Whether a name is one of Fanin, and not of a process that runs: names have the numbers of those that made them."""
    makers = [int(number) for number in re.findall(r"\d+", name)[:1]]
    return name.startswith(PREFIX) and not any(Path(f"/proc/{maker}").exists() for maker in makers)


def names() -> set[str]:
    """Named shared memory and namespaces of Fanin that there are now, whose makers are gone."""
    folders = {what: folder for what, folder in NAMES.items() if folder.is_dir()}
    return {f"{what} {entry.name}" for what, folder in folders.items() for entry in folder.iterdir() if is_left(entry.name)}


def when_over(look: Callable[[], dict[int, str]], grace_s: float = GRACE_S) -> dict[int, str]:
    """What is there when all that is about to end has ended: looks once where nothing is there."""
    until = time.monotonic() + grace_s
    while (found := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def after(mark: str, grace_s: float = GRACE_S) -> list[str]:
    """Lines that say which processes a program that is over has left behind; they are ended."""
    left = when_over(lambda: processes(mark), grace_s)
    for process in left:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return [f"left behind: process {process}: {said}" for process, said in sorted(left.items())]
