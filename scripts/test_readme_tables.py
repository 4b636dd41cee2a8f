"""Tests of readme_tables.py."""

import unittest

import readme_tables


class Tests(unittest.TestCase):
    def test_numbers_have_three_digits(self):
        shown = [readme_tables.number(one) for one in (None, 1.23456, 20000.4, [0.5, 2], "twice")]
        self.assertEqual(shown, ["-", "1.23", "20000", "0.5, 2", "twice"])

    def test_windows_may_be_open(self):
        shown = [readme_tables.window(one) for one in (None, [1.5, None], [None, 2], [0.5, 2.0], [None, None], "a > b")]
        self.assertEqual(shown, ["-", "1.5 or more", "2 or less", "0.5 to 2", "any", "a > b"])


if __name__ == "__main__":
    unittest.main()
