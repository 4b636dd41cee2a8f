"""Numbers and windows as people read them in READMEs of experiments, and the marks between which tables of results stand there. The tables
of `fanin repro` are written by itself (`--record`, `--tables`). Python's standard library only."""

from __future__ import annotations

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def number(value: object) -> str:
    """A measured number, or several, as people read them."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(number(one) for one in value)
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def window(value: object) -> str:
    """What would agree with the claim."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    low, high = value
    if low is None and high is None:
        return "any"
    if high is None:
        return f"{number(low)} or more"
    return f"{number(high)} or less" if low is None else f"{number(low)} to {number(high)}"
