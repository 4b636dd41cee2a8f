"""Tests of canary_choices.py."""

import tempfile
import tomllib
import unittest
from pathlib import Path

import canary_choices

CHOICES = Path(__file__).resolve().parent.parent / "experiments" / "canary" / "choices" / "choices.toml"


def claim(name: str, verdict: str, measured: object) -> dict:
    unsaid = {"class": "SIM", "interval": None, "window": None, "reason": None, "seeds": 1}
    return {"claim": f"fig1/{name}", "measured": measured, "verdict": verdict, **unsaid}


class Tests(unittest.TestCase):
    def test_what_a_choice_says_of_canary_is_for_canary_alone(self):
        figure = {"series": ["4 trees", "Canary 1 us", "Canary 2 us"], "canary": {"table": "static"}, "set": ["a=1"]}
        choice = {"name": "x", "set": ["b=2"], "canary": {"timeout": "1.3us", "scan": "1us"}}
        sets = canary_choices.assignments({"size": ["c=3"], "figures": {"fig1": figure}}, "fig1", choice)
        self.assertEqual([sets[0], sets[1], sets[3]], ["c=3", "a=1", "b=2"])
        trees, one, two = tomllib.loads(sets[2])["series"]
        self.assertEqual(trees["set"], {"jobs.0.system": "tree", "jobs.0.trees": 4})
        self.assertEqual((one["set"]["jobs.0.timeout"], one["set"]["jobs.0.scan"], one["set"]["jobs.0.table"]), ("1.3us", "1us", "static"))
        self.assertEqual((two["set"]["jobs.0.timeout"], two["set"]["jobs.0.scan"]), ("2us", "1us"))

    def test_a_cell_tells_what_has_turned(self):
        base = [claim("a", "reproduced", 1.0), claim("b", "undecided", [1.0, 2.0]), claim("c", "reported", 3.0)]
        now = [claim("a", "not reproduced", 2.0), claim("b", "undecided", [1.5, 2.0]), claim("c", "reported", 4.0)]
        self.assertEqual(canary_choices.cell(base, base), "1 of 2")
        self.assertEqual(canary_choices.cell(now, base), "0 of 2; `+-` a (1 to 2)")
        self.assertEqual(canary_choices.cell(None, base), "")

    def test_what_was_not_run_is_said(self):
        plan = {"figures": {"fig1": {}}, "choices": [{"name": "x", "figures": ["fig1"]}, {"name": "y", "figures": ["fig1"]}]}
        table = canary_choices.table(plan, {"x": {"fig1": [claim("a", "reproduced", 1.0)]}})
        self.assertIn("| x | 1 of 1 |", table)
        self.assertIn("Not run: y: fig1.", table)

    def test_the_shipped_choices_can_be_read(self):
        plan = tomllib.loads(CHOICES.read_text())
        names = [choice["name"] for choice in plan["choices"]]
        self.assertEqual(len(names), len(set(names)))
        for choice in plan["choices"]:
            for name in choice["figures"]:
                for one in canary_choices.assignments(plan, name, choice):
                    self.assertIn("=", one)
                self.assertTrue((CHOICES.parent.parent / name / "claims.toml").exists())

    def test_a_program_that_fails_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertRaises(canary_choices.ChoicesError, canary_choices.run, "false", 1, Path(folder), "fig1", [])


if __name__ == "__main__":
    unittest.main()
