"""Tests of pictures.py, and of the pictures and tables of the documentation: they are those of the plans that are there."""

import json
import tomllib
import unittest

import docs_pictures
import picture_gains
import picture_links
import pictures


class Tests(unittest.TestCase):
    def test_recorded_numbers_are_of_the_plans_that_are_there(self):
        results = json.loads(pictures.RESULTS.read_text())
        plans = [path for path in pictures.PLANS.glob("*.toml") if path != pictures.BLOCK]
        self.assertEqual(sorted(results), sorted(path.stem for path in plans))
        for path in plans:
            self.assertEqual(results[path.stem]["plan"], pictures.digest(path), f"{path.name} has changed since: make pictures")
            plots = [plot["name"] for plot in tomllib.loads(path.read_text())["plot"]]
            self.assertEqual(sorted(results[path.stem]["plots"]), sorted(plots))
            for name in plots:
                self.assertTrue((pictures.IMAGES / f"{name}.svg").exists(), name)

    def test_tables_of_pages_have_the_recorded_numbers(self):
        results, tables = json.loads(pictures.RESULTS.read_text()), 0
        for page in sorted((pictures.ROOT / "docs").glob("*.md")):
            text = page.read_text()
            self.assertEqual(text, pictures.with_tables(text, results), f"{page.name}: make pictures")
            tables += len(pictures.MARKS.findall(text))
        self.assertEqual(tables, 9)

    def test_every_picture_is_on_a_page(self):
        pages = "".join(path.read_text() for path in [pictures.ROOT / "README.md", *(pictures.ROOT / "docs").rglob("*.md")])
        unused = [path.name for path in pictures.IMAGES.glob("*.svg") if f"img/{path.name}" not in pages]
        self.assertEqual(unused, [])

    def test_every_system_has_its_picture(self):
        pages = {page.stem for page in (pictures.ROOT / "docs" / "systems").glob("*.md")} - {"index"}
        found = {kind: pictures.heads(kind) for kind in ("block", "links")}
        self.assertEqual(sorted([*found["block"], *found["links"]]), sorted(pages))
        self.assertEqual(found["block"]["flare"], ["jobs.0.density=0.1"])
        self.assertEqual(found["links"]["ring"], [])

    def test_a_picture_has_the_median_of_repetitions(self):
        rows = [{"params.x": place, "series": "a", "y": value} for place, value in [("1", "3"), ("1", "5"), ("1", "40"), ("2", "7")]]
        self.assertEqual(pictures.shown({"x": "x", "y": "y"}, rows)["medians"], [["a", [5.0, 7.0]]])

    def test_a_picture_has_the_rows_that_its_plot_shows_by_the_names_of_their_values(self):
        rows = [{"params.x": "3us", "params.o": hidden, "series": "a", "y": value} for hidden, value in [("false", "3"), ("true", "5")]]
        shown = pictures.shown({"x": "x", "y": "y", "only": {"o": ["yes"]}}, rows, {"x": {"3us": "10 %"}, "o": {"true": "yes", "false": "no"}})
        self.assertEqual((shown["places"], shown["medians"]), (["10 %"], [["a", [5.0]]]))

    def test_gains_are_of_the_first_series_time(self):
        plot = {"x": "x", "y": "y", "places": ["1", "2"], "medians": [["ring", [10.0, 8.0]], ["tree", [5.0, 10.0]]]}
        self.assertEqual(pictures.gains(plot)["medians"], [["tree", [50.0, -25.0]]])

    def test_gains_are_drawn_where_they_belong(self):
        # From 350 at -10 % to 70 at 60 %, 4 a percent: 50 % is at 110. The middle of a field of 380 that begins at 62 is at 252.
        drawn = picture_gains.draw([("serial", {"places": ["50 %"], "medians": [["a < b", [50.0]]]})])
        self.assertIn('cx="252.0" cy="110.0"', drawn)
        self.assertIn("a &lt; b", drawn)

    def test_tables_have_a_column_a_series_or_a_picture(self):
        one = {"x": "jobs.0.window", "y": "goodput_gbps", "places": ["4", "8"], "medians": [["ring", [1.0, 2.0]], ["tree", [3.0, 4.5]]]}
        self.assertEqual(
            pictures.table([one]).splitlines(), ["| slots | ring | tree |", "|---|---|---|", "| 4 | 1 | 3 |", "| 8 | 2 | 4.5 |"]
        )
        two = {"x": "jobs.0.window", "y": "counts.collisions", "places": ["4"], "medians": [["", [7.0]]]}
        self.assertEqual(pictures.table([two]).splitlines()[0], "| slots | collisions (packets) |")

    def test_links_are_drawn_with_their_packets(self):
        rows = [
            {"from": "host0", "to": "leaf0", "packets": "14"},
            {"from": "leaf0", "to": "host1", "packets": "3"},
            {"from": "leaf0", "to": "spine0", "packets": "0"},
        ]
        drawn = picture_links.draw("a < b", rows)
        self.assertIn("17 packets on links", drawn)
        self.assertIn("a &lt; b", drawn)
        self.assertIn(">14</text>", drawn)
        self.assertNotIn("spine0", drawn)

    def test_dark_pictures_have_no_colour_of_light_ones_that_vanishes(self):
        for picture in pictures.IMAGES.glob("*.svg"):
            colours = {colour.lower() for colour in docs_pictures.COLOUR.findall(docs_pictures.dark(picture.read_text()))}
            self.assertEqual(colours & {"#ffffff", "#000000", "#282828", "#0072b2"}, set(), picture.name)


if __name__ == "__main__":
    unittest.main()
