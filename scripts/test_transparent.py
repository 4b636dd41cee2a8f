"""Tests of transparent.py that need no network."""

import argparse
import unittest
from unittest import mock

import transparent

ROWS = [
    {"case": "clean", "mode": "flow", "goodput_mbit_s": 900.0, "times_s": [0.6, 0.5], "wrong": 0},
    {"case": "clean", "mode": "transparent", "goodput_mbit_s": 810.0, "times_s": [0.7], "wrong": 0},
    {"case": "late", "mode": "transparent", "goodput_mbit_s": 500.0, "times_s": [1.7], "wrong": 3},
    {"case": "others", "mode": "others", "passed": [True, True], "wrong": 0},
]


class Transparent(unittest.TestCase):
    def test_the_table_sets_each_case_against_its_own_flow(self) -> None:
        lines = transparent.table(ROWS, 1_000.0).splitlines()
        self.assertEqual(lines[2], "| clean | nobody: one flow | 900.0 | 1.00 | 0.900 | 0.60 | 0 |")
        self.assertEqual(lines[3], "| clean | the switch | 810.0 | 0.90 | 0.810 | 0.70 | 0 |")
        self.assertEqual(lines[4], "| late | the switch | 500.0 | - | 0.500 | 1.70 | 3 |")
        self.assertEqual(len(lines), 5)

    def test_rates_are_read_as_tc_writes_them(self) -> None:
        self.assertEqual([transparent.megabits(rate) for rate in ("1gbit", "200mbit", "500kbit")], [1_000.0, 200.0, 0.5])
        with self.assertRaises(argparse.ArgumentTypeError):
            transparent.megabits("fast")

    def test_what_the_switch_has_done_is_read_from_its_last_line(self) -> None:
        crew = mock.Mock()
        crew.last_words.return_value = ": joins p0, p1\n a ring begins ring=1 world=4\n INFO ended frames=10 summed=7 \x1b[3mrings\x1b[0m=1"
        self.assertEqual(transparent.switch_words(crew, object()), {"frames": 10, "summed": 7, "rings": 1})

    def test_an_unknown_case_and_too_few_workers_are_refused(self) -> None:
        for arguments in (["fast"], ["--workers", "2"]):
            with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
                transparent.main(arguments)


if __name__ == "__main__":
    unittest.main()
