"""What a program that measures a collective prints: an array of objects. Python's standard library only."""

from __future__ import annotations

import json

from processes import Failed


def only_row(text: str) -> dict:
    """The one measurement in a program's output."""
    # Libraries say this and that before it.
    line = next((line for line in reversed(text.splitlines()) if line.startswith("[")), "")
    try:
        rows = json.loads(line)
    except json.JSONDecodeError as error:
        raise Failed(f"expected a measurement, found {text.strip()[-300:]!r}") from error
    if len(rows) != 1 or not isinstance(rows[0], dict):
        raise Failed(f"expected one measurement, found {line}")
    return rows[0]
