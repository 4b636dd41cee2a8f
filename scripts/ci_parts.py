#!/usr/bin/env python3
"""The parts of CI that run side by side, and which of them a change can break.

Usage: ci_parts.py [--base COMMIT]

Prints the parts as a matrix of GitHub's workflows: `{"include": [{"part": NAME, "command": COMMAND}, ...]}`. With a base these are the parts
that depend on a file which differs between the commit where both histories part and HEAD; without one, or where Git does not know the base,
all of them. What was left out is said on standard error. Python's standard library only, and `cargo metadata`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: A change of these runs everything: what all parts are built by, and this choice itself.
EVERYTHING = (".ci/*", ".github/*", ".cargo/*", "Cargo.*", "Makefile", "rust-toolchain.toml", "scripts/ci_parts.py", "scripts/test_all.py", "scripts/toolchain.sh")


@dataclass(frozen=True)
class Part:
    """A job of CI."""

    name: str
    command: str
    #: Crates that it builds; the crates of the workspace that they are built from are theirs as well.
    crates: Sequence[str] = ()
    #: Other files, by patterns whose `*` also stands for folders.
    files: Sequence[str] = ()


#: The Python package, and what installs it for tests.
PYTHON = ("python/*", "pyproject.toml", "scripts/*.py")
#: What is compiled into the program, beside its crates.
EMBEDDED = ("examples/*", "experiments/*")

PARTS = (
    # Formatting, sizes, traceability and licences are about every file.
    Part("lint", "make --keep-going lint", files=("*",)),
    # Some pages of the documentation are read by the crates' tests, and the types of systems for Python are made by one.
    Part("rust", "make test-rust", crates=("*",), files=(*EMBEDDED, "dataplanes/*", "docs/*.md", "docs/*.toml", "README.md", "python/fanin/_systems.py", "scripts/rust_tests.py")),
    Part("python", "make test-python", crates=("fanin-py", "fanin"), files=(*PYTHON, *EMBEDDED, "docs/*", "README.md", "mkdocs.yml")),
    # By root, who may make network namespaces for the fabrics that it trains over.
    Part("pytorch", 'sudo --preserve-env env "PATH=$PATH" make test-all CHECKS=torch', crates=("fanin-py", "fanin"), files=(*PYTHON, "examples/*")),
    # The oldest that there is a backend for.
    Part("pytorch-oldest", "TORCH_VERSION=2.14.0 make test-all CHECKS=torch", crates=("fanin-py", "fanin"), files=(*PYTHON, "examples/*")),
    # Network namespaces and raw sockets.
    Part(
        "privileged",
        'sudo --preserve-env env "PATH=$PATH" make test-all JOBS=2 CHECKS="privileged-tests trace rdma load"',
        crates=("*",),
        files=("examples/*", "scripts/*.py"),
    ),
    # The switch in the kernel.
    Part(
        "xdp",
        'sudo --preserve-env env "PATH=$PATH" make test-all CHECKS="xdp-oracle xdp"',
        crates=("fanin-xdp", "fanin"),
        files=("dataplanes/xdp/*", "scripts/xdp.py", "scripts/namespaces.py", "scripts/processes.py", "scripts/packages.py"),
    ),
    # The switches on DPDK's software pipeline.
    Part(
        "dpdk",
        'sudo --preserve-env env "PATH=$PATH" make test-all CHECKS=dpdk',
        crates=("fanin-p4",),
        files=("dataplanes/dpdk/*", "dataplanes/p4/golden/*", "scripts/dpdk.py", "scripts/packages.py"),
    ),
    Part("c", "sudo --preserve-env env \"PATH=$PATH\" make test-all CHECKS=c", crates=("fanin-c", "fanin"), files=("examples/c/*", "scripts/c_*.py", "scripts/packages.py", "scripts/processes.py")),
    Part(
        "nccl",
        "make test-all CHECKS=nccl",
        crates=("fanin-nccl", "fanin"),
        files=("scripts/nccl_*.py", "scripts/c_tests.py", "scripts/namespaces.py", "scripts/processes.py", "python/tests/torch/fabrics.py"),
    ),
    Part(
        "mpi",
        'sudo --preserve-env env "PATH=$PATH" make test-all CHECKS=mpi',
        crates=("fanin-c", "fanin"),
        files=("mpi/*", "scripts/c_*.py", "scripts/mpi_*.py", "scripts/packages.py", "scripts/processes.py"),
    ),
    Part(
        "report",
        'sudo --preserve-env env "PATH=$PATH" make test-all CHECKS=report',
        crates=("fanin",),
        files=("scripts/report_tests.py", "scripts/packages.py"),
    ),
    # What a packet-hop of the simulator costs in instructions.
    Part(
        "hops",
        'sudo --preserve-env env "PATH=$PATH" make test-all CHECKS=hops',
        crates=("fanin-simulation",),
        files=("docs/hops.csv", "scripts/hops.py", "scripts/packages.py"),
    ),
    Part("own-crates", "make test-all CHECKS=own-crates", crates=("fanin",), files=(*EMBEDDED, "docs/*.md", "scripts/own_crates.py")),
    Part("docs", "make docs", crates=("fanin", "fanin-py"), files=(*PYTHON, *EMBEDDED, "docs/*", "*.md", "mkdocs.yml")),
    Part("clean-install", "make test-all CHECKS=clean-install", crates=("fanin-py", "fanin"), files=(*PYTHON, *EMBEDDED, "README.md")),
)


def folders_of_crates() -> dict[str, frozenset[str]]:
    """For each crate of the workspace the folders of all its crates that it is built from, its own and those of its tests included."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)["packages"]
    folders = {package["name"]: Path(package["manifest_path"]).parent.relative_to(ROOT).as_posix() for package in packages}
    needs = {package["name"]: {needed["name"] for needed in package["dependencies"] if needed["name"] in folders} for package in packages}

    def closure(name: str) -> frozenset[str]:
        found, ahead = set(), [name]
        while ahead:
            one = ahead.pop()
            if one not in found:
                found.add(one)
                ahead.extend(needs[one])
        return frozenset(folders[one] for one in found)

    return {name: closure(name) for name in folders}


def depends(part: Part, file: str, folders: Mapping[str, frozenset[str]]) -> bool:
    """Whether a part depends on a file, whose path is from the root."""
    if any(fnmatchcase(file, pattern) for pattern in (*EVERYTHING, *part.files)):
        return True
    crates = folders if "*" in part.crates else part.crates
    return any(file.startswith(f"{folder}/") for crate in crates for folder in folders[crate])


def chosen(files: Iterable[str] | None, folders: Mapping[str, frozenset[str]]) -> list[Part]:
    """The parts that depend on one of `files`; all of them where it is not known what has changed."""
    if files is None:
        return list(PARTS)
    changed = list(files)
    return [part for part in PARTS if any(depends(part, file, folders) for file in changed)]


def changed_since(base: str) -> list[str] | None:
    """The files that differ between HEAD and where it parted from `base`, old names of renamed ones included; None where Git does not know."""
    command = ["git", "diff", "--name-only", "--no-renames", "-z", f"{base}...HEAD"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return [name for name in done.stdout.split("\0") if name] if done.returncode == 0 else None


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", metavar="COMMIT", help="only the parts that a change since this commit can break")
    options = parser.parse_args(arguments)
    parts = chosen(changed_since(options.base) if options.base else None, folders_of_crates())
    print(json.dumps({"include": [{"part": part.name, "command": part.command} for part in parts]}))
    left_out = [part.name for part in PARTS if part not in parts]
    if left_out:
        print(f"nothing that these depend on has changed: {', '.join(left_out)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
