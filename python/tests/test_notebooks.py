"""The notebooks of examples/ run as they stand; the one with a crate of its own is run where that crate is tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"


@pytest.mark.parametrize("name", ["compare-systems", "own-workload", "sweep-on-dask"])
def test_every_cell_runs(name: str, tmp_path: Path) -> None:
    """Their assertions are part of them."""
    command = [sys.executable, str(ROOT / "scripts" / "notebooks.py"), str(NOTEBOOKS / f"{name}.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_notebook_is_run() -> None:
    """Here, or where a crate of its own is built."""
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {"compare-systems", "own-workload", "own-system", "sweep-on-dask"}
