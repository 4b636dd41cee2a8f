"""Pictures for dark screens: the program's own, with its colours replaced. Python's standard library only."""

from __future__ import annotations

import re

#: The program's colours for light screens, and what takes their places on dark ones. The colours of series are those of Okabe and Ito, which
#: people tell apart who see few colours; dark blue and green have too little contrast with a dark ground, so light ones of the same order
#: stand in.
DARK = {
    "#ffffff": "#1e2129",
    "#000000": "#e6e6e6",
    "#282828": "#e6e6e6",
    "#6e6e6e": "#a8adb8",
    "#e1e1e1": "#3a3f4b",
    "#0072b2": "#56b4e9",
    "#56b4e9": "#a6d8f5",
    "#d55e00": "#f0803c",
    "#009e73": "#2fc79a",
    "#fbfcfd": "#1e2129",
    "#1f2328": "#e6e6e6",
    "#57606a": "#a8adb8",
    "#c3cad2": "#4a5160",
    "#d5dbe1": "#3a3f4b",
    "#2563a8": "#56b4e9",
    "#b45309": "#f0a03c",
    "#2f7d43": "#5cc07a",
    "#3f4a54": "#c7ccd6",
    "#6b7d70": "#a8adb8",
    "#8a5a1a": "#f0c080",
    "#e3edf8": "#22344d",
    "#e8f3ea": "#1f3a2c",
    "#f1e7da": "#41301f",
}

COLOUR = re.compile(r"#[0-9A-Fa-f]{6}\b")


def dark(picture: str) -> str:
    """An SVG for a dark ground; colours that are not in the table stay."""
    return COLOUR.sub(lambda match: DARK.get(match[0].lower(), match[0]), picture)
