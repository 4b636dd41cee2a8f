"""Draws where systems win and lose: a field an axis, a row a system, a column a place, coloured by how many times the ring's speed it has.
Python's standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

INK, FAINT = "#282828", "#6E6E6E"
#: In a cell, on light colours, also on a dark page.
DARK = "#1B1B1B"
EMPTY = "#E1E1E1"
#: From a tenth of the ring's speed to ten times: orange over grey to blue, which also people tell apart who see few colours.
BEHIND, LEVEL, BEFORE = (230, 130, 40), (240, 240, 240), (86, 160, 225)
LEFT, TITLE, ROW, COLUMN, GAP = 130, 46, 24, 50, 26
#: A letter of a place's name, turned: how high it is and how wide.
TURNED_HEIGHT, TURNED_WIDTH = 3.7, 5.2


@dataclass(frozen=True)
class Panel:
    """A field: its title, its places, and for each system how many times the ring's speed it has there; none where it fails."""

    title: str
    places: Sequence[str]
    cells: Mapping[str, Sequence[float | None]]


def colour(times: float) -> str:
    """The colour of a speed: grey at the ring's, full at ten times or a tenth."""
    share = max(-1.0, min(1.0, math.log10(times))) if times > 0 else -1.0
    # A difference of a few percent must show: the square root takes a factor of 1.1 to a fifth of the way.
    way = math.sqrt(abs(share))
    end = BEFORE if share > 0 else BEHIND
    return "#" + "".join(f"{round(level + (full - level) * way):02x}" for level, full in zip(LEVEL, end, strict=True))


def number(times: float) -> str:
    """A factor in a narrow cell."""
    if times >= 99.5:
        return f"{times:.0f}"
    return f"{times:.1f}" if times >= 9.95 else f"{times:.2f}"


def text(x: float, y: float, words: str, size: int, fill: str, anchor: str = "middle", turned: bool = False) -> str:
    """A line of text."""
    turn = f' transform="rotate(-35 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{turn}>{escape(words)}</text>\n'


def field(left: float, top: int, panel: Panel, systems: Sequence[str]) -> str:
    """One field, without the systems' names."""
    parts = [text(left, TITLE, panel.title, 13, INK, "start")]
    for index, place in enumerate(panel.places):
        parts.append(text(left + index * COLUMN + COLUMN / 2 - 6, top - 6, place, 11, FAINT, "start", turned=True))
    for row, system in enumerate(systems):
        y = top + row * ROW
        for index in range(len(panel.places)):
            x = left + index * COLUMN
            found = panel.cells.get(system)
            times = None if found is None else found[index]
            fill = EMPTY if times is None else colour(times)
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{COLUMN - 2}" height="{ROW - 2}" fill="{fill}"/>\n')
            words = ("" if found is None else "fails") if times is None else number(times)
            parts.append(text(x + COLUMN / 2 - 1, y + ROW / 2 + 3, words, 11, DARK))
    return "".join(parts)


def draw(panels: Sequence[Panel], systems: Sequence[str]) -> str:
    """An SVG of several fields side by side; systems that no field has are left out."""
    rows = [system for system in systems if any(system in panel.cells for panel in panels)]
    longest = [len(panel.places[-1]) for panel in panels]
    top = TITLE + 22 + round(TURNED_HEIGHT * max((len(place) for panel in panels for place in panel.places), default=0))
    width = LEFT + sum(len(panel.places) * COLUMN + GAP for panel in panels) + round(TURNED_WIDTH * (longest or [0])[-1])
    width = max(width, 640)
    height = top + len(rows) * ROW + 34
    parts = [
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" '
        'font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>\n',
        text(12, 20, "Times the ring's speed: blue is before the ring, orange behind it, grey is not on the axis", 15, INK, "start"),
    ]
    for row, system in enumerate(rows):
        parts.append(text(LEFT - 8, top + row * ROW + ROW / 2 + 4, system, 12, INK, "end"))
    left = float(LEFT)
    for panel in panels:
        parts.append(field(left, top, panel, rows))
        left += len(panel.places) * COLUMN + GAP
    return "".join([*parts, "</svg>\n"])
