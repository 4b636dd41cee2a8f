#!/usr/bin/env python3
"""Runs notebooks: their code, cell by cell, in one namespace, as Jupyter does without anything of its own.

Usage: notebooks.py FILE.ipynb ...

A cell's last line may be an expression, whose value Jupyter shows; here it is made and its text forms are asked for. A notebook may not have
outputs in it.
Exits with 1 where a cell raises an error. Python's standard library only, and what the notebooks import.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def cells(path: Path) -> list[str]:
    """The code of each cell.

    Raises:
        ValueError: Something that ran is left in it.
    """
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            if cell["outputs"] or cell["execution_count"] is not None:
                raise ValueError(f"{path.name}: a cell has outputs; clear them")
            found.append("".join(cell["source"]))
    return found


def run(path: Path) -> dict[str, Any]:
    """Runs a notebook; gives its names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(cells(path)):
        tree = ast.parse(code, f"{path.name}, cell {number}")
        shown = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)  # noqa: S102
        if shown is not None:
            value = eval(compile(shown, f"{path.name}, cell {number}", "eval"), names)  # noqa: S307
            repr(value)
            if hasattr(value, "_repr_html_"):
                value._repr_html_()
    return names


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    for argument in arguments:
        run(Path(argument))
        print(f"{Path(argument).name}: every cell ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
