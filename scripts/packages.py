"""Debian packages that peers come from, installed where that is allowed. Python's standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
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
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return f"`{' '.join(command)}` failed"
    return None if present() else f"{named} is installed, but what is needed of it is not there"
