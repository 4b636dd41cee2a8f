"""The `fanin` program of this installation."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

__all__ = ["find_program"]


def find_program() -> str:
    """The program that was installed with this package.

    Raises:
        FileNotFoundError: It is not where it was put; says where that would be.
    """
    # Where it was put depends on how: for everybody, into a virtual environment, with `--user`, with `--target`.
    places = [sysconfig.get_path("scripts")]
    user = f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        places.append(sysconfig.get_path("scripts", user))
    places.append(str(Path(__file__).resolve().parents[1] / "bin"))
    for place in places:
        program = shutil.which("fanin", path=place)
        if program is not None:
            return program
    raise FileNotFoundError(f"the fanin program is not in {' or '.join(places)}: install the package again")
