"""Draws what systems gain of an iteration, by the share of communication, one field a plot. Python's standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 900, 430
INK, FAINT, LINE = "#282828", "#6E6E6E", "#E1E1E1"
#: Okabe and Ito's, as in the program's own pictures.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#56B4E9")
#: Fields: where they begin, how wide they are, and the heights of their lowest and highest numbers.
LEFT, FIELD, GAP, BOTTOM, TOP = 62, 380, 58, 350, 70
LOWEST, HIGHEST, STEP = -10, 60, 10
TITLES = {"serial": "computing and summing one after the other", "overlap": "sums beside the backward pass"}


def height(percent: float) -> float:
    """Where a number stands."""
    return BOTTOM - (percent - LOWEST) * (BOTTOM - TOP) / (HIGHEST - LOWEST)


def field(x: float, title: str, plot: Mapping[str, object]) -> str:
    """One field with its axes and lines. Places on the axis are shares such as `10 %`."""
    places, medians = plot["places"], plot["medians"]
    assert isinstance(places, list) and isinstance(medians, list)
    across = [x + FIELD * float(place.removesuffix(" %")) / 100 for place in places]
    parts = [f'<text x="{x}" y="{TOP - 14}" font-size="13" fill="{INK}">{escape(title)}</text>\n']
    for percent in range(LOWEST, HIGHEST + 1, STEP):
        y = height(percent)
        parts.append(
            f'<line x1="{x}" y1="{y:.1f}" x2="{x + FIELD}" y2="{y:.1f}" stroke="{FAINT if percent == 0 else LINE}"/>\n'
            f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end" font-size="12" fill="{FAINT}">{percent}</text>\n'
        )
    for place, at in zip(places, across, strict=True):
        parts.append(f'<text x="{at:.1f}" y="{BOTTOM + 18}" text-anchor="middle" font-size="12" fill="{FAINT}">{escape(place)}</text>\n')
    for (_, numbers), colour in zip(medians, COLOURS, strict=False):
        points = [(at, height(number)) for at, number in zip(across, numbers, strict=True)]
        parts.append(
            f'<polyline points="{" ".join(f"{at:.1f},{y:.1f}" for at, y in points)}" fill="none" stroke="{colour}" stroke-width="2"/>\n'
            + "".join(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>\n' for at, y in points)
        )
    return "".join(parts)


def draw(plots: Sequence[tuple[str, Mapping[str, object]]]) -> str:
    """An SVG of gains in percent: plots by their names, with `places` and `medians` as results have them."""
    parts = [
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#FFFFFF"/>\n'
        f'<text x="20" y="26" font-size="17" fill="{INK}">What is gained of a ring\'s iteration, in percent, by the share of communication</text>\n'
    ]
    parts += [field(LEFT + index * (FIELD + GAP), TITLES[name], plot) for index, (name, plot) in enumerate(plots)]
    medians = plots[0][1]["medians"]
    assert isinstance(medians, list)
    for index, ((series, _), colour) in enumerate(zip(medians, COLOURS, strict=False)):
        x = LEFT + index * 130
        parts.append(
            f'<line x1="{x}" y1="400" x2="{x + 26}" y2="400" stroke="{colour}" stroke-width="3"/>\n'
            f'<text x="{x + 33}" y="404" font-size="13" fill="{INK}">{escape(series)}</text>\n'
        )
    return "".join([*parts, "</svg>\n"])
