"""The page of the model checker's models: it is what its record says, and the record has every model."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

import models_table

SYSTEMS = Path(models_table.ROOT, "crates/systems/src/lib.rs")


class ModelsTable(unittest.TestCase):
    """Of the page that is in the tree."""

    def test_the_page_is_what_the_record_says(self) -> None:
        page = models_table.PAGE.read_text()
        self.assertEqual(models_table.rendered(page, models_table.record()), page, "run scripts/models_table.py")

    def test_the_record_has_the_models_of_every_test(self) -> None:
        tests = models_table.tests_with_models((path.stem, path.read_text()) for path in models_table.TESTS.glob("*.rs"))
        self.assertGreater(len(tests), 40)
        self.assertEqual({model["test"] for model in models_table.record()}, tests, "run scripts/models_table.py --run")

    def test_every_system_has_a_model_that_holds(self) -> None:
        systems = set(re.findall(r'Parameters\) = \d+ "(\w+)" in', SYSTEMS.read_text())) - {"own"}
        models = [model for model in models_table.record() if model["verdict"] == "holds"]
        self.assertEqual(systems - {system for model in models for system in model["systems"]}, set())

    def test_tests_with_models_are_found_by_what_they_call(self) -> None:
        text = (
            "fn help() {\n    assert_holds(1);\n}\n\n#[test]\nfn one() {\n    help();\n}\n\n#[test]\n"
            '#[ignore = "minutes"]\nfn two() {\n    assert_found (2);\n}\n\n#[test]\nfn three() {\n    other();\n}\n'
        )
        self.assertEqual(models_table.tests_with_models([("part", text)]), {"part::one", "part::two"})

    def test_steps_are_said_in_words(self) -> None:
        self.assertEqual(models_table.step("Deliver(2, 0)"), "packet 2 of those under way arrives")
        self.assertEqual(models_table.step("TimePasses"), "nothing is under way: all timers run out")


if __name__ == "__main__":
    unittest.main()
