"""Tests of hops.py that need neither valgrind nor a build."""

import contextlib
import io
import unittest
from unittest import mock

import hops


class Counts(unittest.TestCase):
    def test_what_valgrind_and_the_cell_print_is_read(self):
        report = "==7== \n==7== I refs:        1,234,567\n"
        self.assertEqual(hops.parse("300 packet-hops, 340 events\n", report), (1_234_567, 300, 340))
        self.assertEqual(hops.parse("3 packet-hops, 4 events\n", "==7== I   refs:      89"), (89, 3, 4))

    def test_anything_else_is_an_error(self):
        for output, report in (("", "I refs: 5"), ("3 packet-hops, 4 events", ""), ("fast", "I refs: fast")):
            with self.assertRaises(hops.HopsError):
                hops.parse(output, report)

    def test_a_hop_is_the_slope_so_that_set_up_does_not_count(self):
        self.assertEqual(hops.slope((9_000 + 500 * 10, 10, 12), (9_000 + 500 * 30, 30, 37)), (500.0, 1.25))
        with self.assertRaises(hops.HopsError):
            hops.slope((5, 7, 7), (5, 7, 7))


class Record(unittest.TestCase):
    def test_three_percent_more_is_too_much_and_two_are_not(self):
        known = {"change": "x", "fig08": "700.0", "tree": "200.0", "w1": "250.0"}
        self.assertEqual(hops.dearer(known, {"fig08": 714.0, "tree": 100.0, "w1": 257.0}), [])
        said = hops.dearer(known, {"fig08": 722.0, "tree": 200.0, "w1": 250.0})
        self.assertEqual(len(said), 1)
        self.assertIn("fig08: 722.0 instructions a hop, 700.0 before (+3.1%", said[0])

    def test_every_row_has_a_count_for_each_cell(self):
        rows = hops.recorded()
        self.assertTrue(rows)
        for row in rows:
            self.assertTrue(row["change"] and all(float(row[cell]) > 0 for cell in hops.CELLS), row)

    def test_the_page_shows_the_record(self):
        page = hops.PAGE.read_text()
        self.assertEqual(page, hops.with_table(page, hops.recorded()), "scripts/hops.py --write makes the table")


class Check(unittest.TestCase):
    def run_with(self, rise: dict[str, float]) -> tuple[int, str]:
        """The check's exit code and complaints, where a hop of each cell takes what the record says and this share more."""

        def count(executable: str, cell: str, size: int) -> tuple[int, int, int]:
            hop_count = size // 64
            return round(5e6 + hop_count * float(hops.recorded()[-1][cell]) * (1 + rise.get(cell, 0))), hop_count, hop_count

        said = io.StringIO()
        with contextlib.ExitStack() as stack:
            for name, value in (("obstacle", lambda: None), ("program", lambda: "hops"), ("count", count)):
                stack.enter_context(mock.patch.object(hops, name, value))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(said))
            code = hops.main([])
        return code, said.getvalue()

    def test_a_planted_rise_fails_whichever_cell_it_is_in(self):
        self.assertEqual(self.run_with({}), (0, ""))
        self.assertEqual(self.run_with({cell: 0.025 for cell in hops.CELLS}), (0, ""))
        for cell in hops.CELLS:
            code, said = self.run_with({cell: 0.035})
            self.assertEqual(code, 1)
            self.assertIn(f"error: {cell}: ", said)
            self.assertEqual(said.count("error: "), 1)

    def test_where_nothing_can_count_the_check_fails(self):
        with mock.patch.object(hops, "obstacle", lambda: "no valgrind"), contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(hops.main([]), 1)
        self.assertEqual(said.getvalue(), "error: no valgrind\n")


if __name__ == "__main__":
    unittest.main()
