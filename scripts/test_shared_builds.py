"""`make run` builds the part of the program that simulates first, and then the rest: what both have must be built once."""

from __future__ import annotations

import os
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def features(*arguments: str) -> dict[str, set[str]]:
    """The features that each package is built with, by name and version; a package may be built more than once, for build scripts."""
    command = ["cargo", "tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}", *arguments]
    # As a new user's Cargo is: settings that a developer has given it may build other packages with these.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_") or name == "CARGO_HOME"}
    listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[str]] = {}
    for line in listed.splitlines():
        package, _, names = line.partition("|")
        found.setdefault(" ".join(package.split(" ")[:2]), set()).add(names.removesuffix(" (*)"))
    return found


class SharedBuilds(unittest.TestCase):
    """Both programs of `make run`."""

    def test_what_both_need_is_built_with_the_same_features(self) -> None:
        part = features("--package", "fanin-simulate")
        whole = features("--package", "fanin", "--no-default-features")
        assert len(part) > 80, part
        again = {package: (part[package], whole.get(package)) for package in part if not part[package] <= whole.get(package, set())}
        self.assertEqual(again, {}, "compiled twice by `make run`: give fanin-simulate the features that the program has")


if __name__ == "__main__":
    unittest.main()
