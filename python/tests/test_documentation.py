"""The examples of README.md, docs/python.md, docs/operators.md and docs/sweeps.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fanin

ROOT = Path(__file__).resolve().parents[2]


def examples() -> list[tuple[str, str]]:
    """The Python examples of all pages that are not PyTorch's, with their places."""
    found = []
    for page in ("README.md", "docs/python.md", "docs/operators.md", "docs/sweeps.md"):
        text = (ROOT / page).read_text()
        for match in re.finditer(r"(?<!-->\n)^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if "import torch" not in match.group(1):
                line = text.count("\n", 0, match.start()) + 1
                found.append((f"{page}:{line}", match.group(1)))
    return found


@pytest.mark.parametrize(("place", "code"), examples(), ids=[place for place, _ in examples()])
def test_examples_run(place: str, code: str, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(code)
    folder = ROOT if "examples/" in code else tmp_path
    done = subprocess.run([sys.executable, program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{place}:\n{done.stderr}"
    if "fanin.run(" in code:
        assert done.stdout == "[1.0, 1.0, 5.0, 5.0]\n", place


def with_ranks(comm: fanin.Communicator, code: str) -> list[float]:
    """An example as one of several ranks."""
    names: dict[str, Any] = {}
    pair = comm.split(0)
    assert pair is not None
    exec(code.replace("fanin.init()", "pair"), {"pair": pair}, names)
    return [float(names[name][0]) for name in ("mean", "gradients", "mine")]


def test_the_first_example_does_with_ranks_what_it_says() -> None:
    code = next(code for place, code in examples() if place.startswith("docs/python.md"))
    assert fanin.run(with_ranks, code, workers=2) == [[1.5, 3.0, 6.0]] * 2


def test_pages_have_examples() -> None:
    assert len([place for place, _ in examples() if place.startswith("docs/python.md")]) == 10
