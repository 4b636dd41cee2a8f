#!/usr/bin/env python3
"""Prints the version of this repository, which is the workspace's in Cargo.toml and nowhere else.

Usage: version.py [--tag vX.Y.Z]

With --tag, exits with 1 unless the tag is that of the version. Python's standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

MANIFEST = Path(__file__).resolve().parent.parent / "Cargo.toml"


def version() -> str:
    """The workspace's version."""
    # Python 3.10 has no reader of TOML.
    found = re.search(r'^\[workspace\.package\]\n(?:[^\[].*\n|\n)*?version = "([^"]+)"$', MANIFEST.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{MANIFEST} has no workspace.package.version")
    return found.group(1)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tag", help="the tag of a release")
    tag = parser.parse_args(arguments).tag
    if tag is not None and tag != f"v{version()}":
        print(f"the tag is {tag}, and the version in Cargo.toml is {version()}", file=sys.stderr)
        return 1
    print(version())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
