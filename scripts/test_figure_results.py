"""Tests of figure_results.py."""

import json
import tempfile
import unittest
from pathlib import Path

import figure_results

CLAIM = {
    "claim": "fig1/faster",
    "figure": "fig1",
    "paper": "twice | as fast",
    "paper_value": 2.0,
    "class": "SIM",
    "measured": [1.23456, 20000.4],
    "interval": [1.1, 20100.0],
    "seeds": 5,
    "draws": True,
    "window": [1.5, None],
    "verdict": "not reproduced",
    "reason": "not at 5%",
    "quick": True,
    "readings": [{"reading": "literal", "measured": 2.5, "interval": [2.5, 2.5], "seeds": None, "draws": False, "verdict": "reproduced", "reason": None}],
    "causes": [
        {
            "cause": "rate",
            "text": "links are slow",
            "change": "network.rate=2Gb/s",
            "expected": "up",
            "finding": "cause refuted",
            "of_all": "cause refuted",
            "why": None,
            "changed": {"measured": 1.2, "verdict": "not reproduced"},
        }
    ],
}


class Tests(unittest.TestCase):
    def test_a_claim_is_a_row_and_each_reading_another(self):
        rows = figure_results.row(CLAIM)
        self.assertEqual(rows[0], "| faster | twice \\| as fast | 2 | 1.23, 20000 | 1.1 to 20100 | 5 | 1.5 or more | not reproduced (not at 5%) |")
        self.assertEqual(rows[1], "|  | *literal reading* |  | 2.5 |  | any |  | reproduced |")

    def test_orders_have_differences_in_percent_and_one_seed_is_marked(self):
        order = {**CLAIM, "class": "consistency", "interval": [[0.0025, 0.0025], [-0.04, 0.31]], "seeds": 1, "reason": None, "readings": []}
        self.assertIn("| by 0.25 %, -4 to 31 % | 1 | 1.5 or more | not reproduced (1 seed) |", figure_results.row(order)[0])
        self.assertTrue(figure_results.row(order)[0].startswith("| faster (consistency) | "))

    def test_causes_stand_below_the_table(self):
        last = figure_results.table("paper", [CLAIM]).splitlines()[-1]
        self.assertTrue(last.startswith("- **cause refuted**, `rate`: links are slow (`network.rate=2Gb/s`; expected up). faster: 1.23, 20000, not"), last)
        self.assertTrue(last.endswith("; with the change 1.2, not reproduced."), last)

    def test_results_take_the_place_of_older_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "fig1").mkdir()
            readme = root / "fig1" / "README.md"
            readme.write_text(f"before\n{figure_results.BEGIN}\nold\n{figure_results.END}\nafter\n")
            (root / "claims.json").write_text(json.dumps([CLAIM]))
            self.assertEqual(figure_results.main([str(root / "claims.json"), str(root)]), 0)
            text = readme.read_text()
            self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
            self.assertIn("fig1 --quick", text)
            self.assertNotIn("old", text)

    def test_what_is_missing_is_named(self):
        self.assertEqual(figure_results.main(["/no/such/file", "/tmp"]), 2)
        with self.assertRaisesRegex(figure_results.ResultsError, "each once"):
            figure_results.insert("no marks", "", "README.md")


if __name__ == "__main__":
    unittest.main()
