"""The dashboard for Grafana asks for metrics that switches have."""

from __future__ import annotations

import json
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "examples" / "grafana" / "fanin.json"
#: A test of the program holds these pages against what switches serve.
PAGES = ["docs/switch.md", "docs/fabric.md"]
#: Columns of Grafana's grid.
COLUMNS = 24


class Dashboard(unittest.TestCase):
    """The file itself."""

    def setUp(self) -> None:
        self.dashboard = json.loads(DASHBOARD.read_text())

    def test_every_metric_is_one_that_switches_have(self) -> None:
        documented = {word for page in PAGES for word in re.findall(r"`((?:fanin|process)_[a-z_]+)`", (ROOT / page).read_text())}
        asked = [target["expr"] for panel in self.dashboard["panels"] for target in panel["targets"]]
        asked += [variable["query"] for variable in self.dashboard["templating"]["list"]]
        names = {name for expression in asked for name in re.findall(r"\b(?:fanin|process)_[a-z_]+", expression)}
        self.assertGreater(len(names), 10)
        self.assertEqual(names - documented, set())

    def test_panels_have_room_and_say_what_they_show(self) -> None:
        panels = self.dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], COLUMNS)
            self.assertTrue(panel["description"].endswith("."), panel["title"])
            taken |= cells


if __name__ == "__main__":
    unittest.main()
