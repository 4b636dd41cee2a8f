"""Draws how many packets crossed each link of a small network, from `links.csv`. Python's standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 1100, 430
#: Of layers by the beginning of nodes' names, from below.
LAYERS = {"host": 360, "leaf": 225, "spine": 90}
INK, FAINT, UP, DOWN = "#282828", "#6E6E6E", "#0072B2", "#D55E00"


def layer(node: str) -> str:
    """The layer of a node, by its name."""
    return node.rstrip("0123456789")


def places(nodes: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Where nodes stand: each layer spread over the width, in the order of numbers."""
    found = {}
    for name, y in LAYERS.items():
        row = sorted((node for node in nodes if layer(node) == name), key=lambda node: int(node[len(name) :]))
        for index, node in enumerate(row):
            found[node] = (WIDTH * (index + 0.5) / len(row), float(y))
    return found


def arrow(start: tuple[float, float], end: tuple[float, float], packets: int, is_up: bool) -> str:
    """A link in one direction, beside the other one, with its packets."""
    (x0, y0), (x1, y1) = start, end
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    # To the right of its direction, and not up to the middle of the nodes.
    x0, y0, x1, y1 = x0 - dy * 5 + dx * 14, y0 + dx * 5 + dy * 14, x1 - dy * 5 - dx * 14, y1 + dx * 5 - dy * 14
    colour, at = (UP, 0.32) if is_up else (DOWN, 0.58)
    x, y = x0 + (x1 - x0) * at, y0 + (y1 - y0) * at
    tip = f"{x1:.1f},{y1:.1f} {x1 - dx * 9 - dy * 4:.1f},{y1 - dy * 9 + dx * 4:.1f} {x1 - dx * 9 + dy * 4:.1f},{y1 - dy * 9 - dx * 4:.1f}"
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}" stroke-width="1.5"/>\n'
        f'<polygon points="{tip}" fill="{colour}"/>\n'
        f'<text x="{x - dy * 10:.1f}" y="{y + dx * 10:.1f}" text-anchor="middle" font-size="12" fill="{colour}">{packets}</text>\n'
    )


def draw(title: str, rows: Sequence[Mapping[str, str]]) -> str:
    """An SVG of the links that packets crossed. Rows have `from`, `to` and `packets`, as `links.csv` has them."""
    used = [(row["from"], row["to"], int(row["packets"])) for row in rows if int(row["packets"]) > 0]
    at = places(sorted({node for start, end, _ in used for node in (start, end)}))
    total = sum(packets for _, _, packets in used)
    parts = [
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#FFFFFF"/>\n'
        f'<text x="20" y="26" font-size="17" fill="{INK}">{escape(title)}</text>\n'
        f'<text x="20" y="50" font-size="12" fill="{FAINT}">{total} packets on links. Beside an arrow: how many took it</text>\n'
        f'<text x="900" y="26" font-size="12" fill="{UP}">upwards</text>\n<text x="980" y="26" font-size="12" fill="{DOWN}">downwards</text>\n'
    ]
    order = list(LAYERS)
    for start, end, packets in used:
        parts.append(arrow(at[start], at[end], packets, order.index(layer(end)) > order.index(layer(start))))
    for node, (x, y) in at.items():
        # Where no link comes: below hosts, beside leaves on the outer side, above spines.
        beside = (-14, 4, "end", 8) if x < WIDTH / 2 else (14, 4, "start", 8)
        dx, dy, anchor, radius = {"host": (0, 22, "middle", 5), "leaf": beside, "spine": (0, -14, "middle", 8)}[layer(node)]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{INK}"/>\n'
            f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}" font-size="12" fill="{INK}">{escape(node)}</text>\n'
        )
    return "".join([*parts, "</svg>\n"])
