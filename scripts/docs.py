#!/usr/bin/env python3
"""Builds the site into target/site, and checks it: links, examples, and pictures that take seconds.

Usage: docs.py [--build-only]

Its environment is target/docs, with what docs/requirements.txt pins. FANIN names the program that command-line help comes from and examples
run; without it the program is built. Python 3.11's standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit(f"the site needs Python 3.11 to be built, and this is {sys.version.split()[0]}")

import docs_examples
import docs_links
import pictures

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "target" / "docs"
REQUIREMENTS = ROOT / "docs" / "requirements.txt"
INSTALLED = ENVIRONMENT / "requirements.txt"
SITE = ROOT / "target" / "site"


def prepare() -> None:
    """Makes the environment, where it is not there as it must be."""
    if INSTALLED.exists() and INSTALLED.read_text() == REQUIREMENTS.read_text():
        return
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", str(REQUIREMENTS)]
    subprocess.run([ENVIRONMENT / "bin" / "python", *install], check=True)
    shutil.copy(REQUIREMENTS, INSTALLED)


def program() -> Path:
    """The program, built if it has to be."""
    given = os.environ.get("FANIN")
    if given is None:
        subprocess.run(["cargo", "build", "--locked", "-p", "fanin", "--no-default-features"], cwd=ROOT, check=True)
    return Path(given or ROOT / "target" / "debug" / "fanin").resolve()


def build(fanin: Path) -> None:
    """Builds the site; a warning is an error."""
    environ = {
        **os.environ,
        "FANIN": str(fanin),
        "NO_MKDOCS_2_WARNING": "1",
        "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run([ENVIRONMENT / "bin" / "mkdocs", "build", "--quiet", "--strict", "--clean"], cwd=ROOT, env=environ, check=True)


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build-only", action="store_true", help="check links, but run no examples and make no pictures")
    options = parser.parse_args(arguments)
    prepare()
    fanin = program()
    build(fanin)
    wrong = list(docs_links.problems(SITE))
    print("\n".join(wrong) if wrong else f"built: {SITE.relative_to(ROOT)}; every link leads somewhere")
    if wrong or options.build_only:
        return 1 if wrong else 0
    failed = docs_examples.run(fanin)
    return 1 if pictures.main(["--check", "--fanin", str(fanin), *pictures.QUICK]) or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
