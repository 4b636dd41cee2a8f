"""Debian packages that peers come from, installed where that is allowed. Python's standard library only."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence


def missing(packages: Sequence[str], present: Callable[[], bool]) -> str | None:
    """Why `packages` are not to be had, or None where `present` says that they are there, if need be after installing them."""
    if present():
        return None
    named = " and ".join(packages)
    if shutil.which("apt-get") is None:
        return f"{named} is not installed and this system has no apt-get"
    if os.geteuid() != 0:
        return f"{named} is not installed and this user is not root"
    # Two checks at the same time may want packages, and apt refuses the second.
    with open(os.path.join(tempfile.gettempdir(), "fanin-packages.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if present() else installed(packages, present)


def installed(packages: Sequence[str], present: Callable[[], bool]) -> str | None:
    """Installs `packages`; why they are still not to be had, or None."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return f"`{' '.join(command)}` failed"
    return None if present() else f"{' and '.join(packages)} is installed, but what is needed of it is not there"
