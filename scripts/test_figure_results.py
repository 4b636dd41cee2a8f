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
    "measured": [1.23456, 20000.4],
    "window": [1.5, None],
    "verdict": "not reproduced",
    "reason": "not at 5%",
    "quick": True,
    "readings": [{"reading": "literal", "measured": 2.5, "verdict": "reproduced", "reason": None}],
}


class Tests(unittest.TestCase):
    def test_a_claim_is_a_row_and_each_reading_another(self):
        rows = figure_results.row(CLAIM)
        self.assertEqual(rows[0], "| faster | twice \\| as fast | 2 | 1.23, 20000 | 1.5 or more | not reproduced (not at 5%) |")
        self.assertEqual(rows[1], "|  | *literal reading* |  | 2.5 |  | reproduced |")

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
