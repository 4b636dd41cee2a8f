"""Tests of all_plans.py, all_page.py and all_picture.py, and of the plans, tables and pictures that they make."""

import tomllib
import unittest

import all_page
import all_picture
import all_plans


class Tests(unittest.TestCase):
    def test_plans_are_what_the_script_makes(self):
        there = sorted(path.parent.name for path in all_plans.FOLDER.glob("*/plan.toml"))
        self.assertEqual(there, sorted(all_plans.AXES))
        for name in all_plans.AXES:
            text = (all_plans.FOLDER / name / "plan.toml").read_text()
            self.assertEqual(text, all_plans.plan(name), f"{name}: scripts/all_plans.py")
            series = [one["name"] for one in tomllib.loads(text)["series"]]
            self.assertEqual(series, [system.name for system in all_plans.AXES[name].systems()])
            self.assertEqual(len(set(series)), len(series))

    def test_a_system_is_a_line_and_a_series_of_every_axis_that_it_can_run_on(self):
        more = all_plans.System("another", {"system": "tree", "trees": 2}, partial=True)
        before = all_plans.SYSTEMS
        try:
            all_plans.SYSTEMS = (*before, more)
            having = [name for name in all_plans.AXES if '"another"' in all_plans.plan(name)]
        finally:
            all_plans.SYSTEMS = before
        self.assertIn("congestion", having)
        self.assertIn("partial", having)
        self.assertNotIn("jobs", having)
        self.assertNotIn("spine_gone", having)

    def test_records_are_of_the_plans_that_are_there(self):
        for name, axis in all_plans.AXES.items():
            results = all_page.recorded(name)
            self.assertIsNotNone(results, f"{name}: scripts/all_page.py --run {name}")
            self.assertEqual(results["plan"], all_page.digest(name), f"{name}: scripts/all_page.py --run {name}")
            for of in results[axis.shown].values():
                self.assertEqual(list(of), all_page.places(axis))
                self.assertEqual({len(runs) for runs in of.values()}, {axis.repetitions})

    def test_pages_and_pictures_have_the_recorded_numbers(self):
        for path, text in all_page.made().items():
            self.assertTrue(path.exists(), path)
            self.assertEqual(path.read_text(), text, f"{path.name}: scripts/all_page.py")

    def test_every_advice_is_of_an_axis_and_begins_with_what_it_advises(self):
        for situation, _, name, place, systems in all_page.CHOICES:
            axis = all_plans.AXES[name]
            self.assertIn(place, all_page.places(axis), situation)
            fast = all_page.speeds(all_page.recorded(name), axis)
            found = [all_page.median(fast[system][place]) for system in systems]
            self.assertGreaterEqual(found[0], 0.97 * max(found), f"{situation}: {systems[0]} is not the first of {systems}")

    def test_a_difference_is_decided_by_the_interval_of_its_seeds(self):
        self.assertEqual(all_page.against([10.0, 10.1, 10.2], [5.0, 5.0, 5.0]), "above")
        self.assertEqual(all_page.against([5.0, 5.0, 5.0], [10.0, 10.1, 10.2]), "below")
        self.assertEqual(all_page.against([10.0, 10.01, 10.0], [10.0, 10.0, 10.0]), "level")
        self.assertEqual(all_page.against([10.0, 20.0, 5.0], [10.0, 10.0, 10.0]), "undecided")
        self.assertEqual(all_page.against([10.0, None, 5.0], [10.0, 10.0, 10.0]), "fails")
        # A single seed has no interval: a tenth to either side is assumed.
        self.assertEqual(all_page.against([10.8], [10.0]), "undecided")
        self.assertEqual(all_page.against([12.0], [10.0]), "above")

    def test_an_interval_is_students(self):
        # 1, 2, 3: the mean is 2 and the deviation 1, so the half is 4.303 over the root of 3.
        low, high = all_page.interval([1.0, 2.0, 3.0])
        self.assertAlmostEqual(high - 2.0, 2.4843, places=3)
        self.assertAlmostEqual(2.0 - low, 2.4843, places=3)

    def test_a_cell_says_how_sure_it_is(self):
        self.assertEqual(all_page.cell([94.3, 94.3, 94.3], "above"), "**94.3**")
        self.assertEqual(all_page.cell([1.0, 2.0, 3.0], "undecided"), "2 (0 to 4.48)")
        self.assertEqual(all_page.cell([1.0, None], "fails"), "fails")

    def test_probabilities_are_called_by_their_powers(self):
        self.assertEqual([all_page.called(one) for one in (0.0, 0.00001, 0.01, "64B", 64)], ["0", "1e-5", "1e-2", "64B", "64"])

    def test_runs_of_another_plan_are_refused(self):
        with self.assertRaises(SystemExit):
            all_page.taken("partial_none", [{"series": "ring", "goodput_gbps": 1.0}])

    def test_a_picture_has_factors_and_says_what_fails(self):
        panel = all_picture.Panel("a < b", ["1 %"], {"ring": [1.0], "tree": [2.0], "other": [None]})
        drawn = all_picture.draw([panel], ["ring", "tree", "other", "absent"])
        self.assertIn("a &lt; b", drawn)
        self.assertIn(">2.00</text>", drawn)
        self.assertIn(">fails</text>", drawn)
        self.assertNotIn("absent", drawn)

    def test_colours_are_grey_at_the_rings_speed_and_full_at_ten_times(self):
        self.assertEqual(all_picture.colour(1.0), "#f0f0f0")
        self.assertEqual(all_picture.colour(10.0), "#56a0e1")
        self.assertEqual(all_picture.colour(100.0), all_picture.colour(10.0))
        self.assertEqual(all_picture.colour(0.1), "#e68228")


if __name__ == "__main__":
    unittest.main()
