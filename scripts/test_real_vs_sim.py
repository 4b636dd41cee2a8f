"""Tests of real_vs_sim.py, without running anything."""

import json
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import real_vs_sim


def found(goodputs, exact=True):
    """What a testbed prints, as far as it is read."""
    worker = {"counters": {"retransmitted": {"timeout": 2, "gap": 1}}}
    operations = [{"goodput_mbit_s": goodput, "exact": exact, "workers": [worker, worker]} for goodput in goodputs]
    return {
        "jobs": [{"message_bytes": 1024, "goodput_mbit_s_median": sorted(goodputs)[len(goodputs) // 2], "operations": operations}],
        "streams": [{"sent": {"packets": 200}, "received": {"packets": 150}}],
        "cpu_idle_share": 0.5,
        "cpu_used_share": 0.25,
    }


def rows():
    """Both systems, idle and congested."""
    return [
        real_vs_sim.row_of("idle", "canary", 10.0, found([9.0, 10.0, 9.5])),
        real_vs_sim.row_of("idle", "tree", 10.0, found([9.0, 8.0, 8.5])),
        real_vs_sim.row_of("congested", "tree", 5.0, found([4.0, 4.25, 4.5])),
    ]


class Tests(unittest.TestCase):
    def test_a_row_holds_the_median_beside_what_was_simulated(self):
        row = rows()[0]
        self.assertEqual((row["measured_mbit_s"], row["measured_lowest_mbit_s"], row["measured_highest_mbit_s"]), (9.5, 9.0, 10.0))
        self.assertEqual((row["ratio"], row["sent_again"], row["traffic_arrived"]), (0.95, 18, 0.75))
        with self.assertRaisesRegex(real_vs_sim.RunError, "not exact"):
            real_vs_sim.row_of("idle", "canary", 10.0, found([9.0], exact=False))

    def test_claims_are_judged_where_their_cases_were_run(self):
        keeps = {"case": "congested", "system": "tree", "of": "measured_mbit_s"}
        keeps = {**keeps, "over": {"case": "idle", "system": "tree", "of": "measured_mbit_s"}}
        claims = [
            {"id": "a", "text": "", "value": {"case": "idle", "system": "canary", "of": "ratio"}, "window": [0.9, None]},
            {"id": "b", "text": "", "value": keeps, "window": [None, 0.4]},
            {"id": "c", "text": "", "value": {"case": "loss", "system": "tree", "of": "ratio"}, "window": [0, 1]},
        ]
        judged = real_vs_sim.judge(rows(), claims)
        self.assertEqual([(claim["id"], claim["measured"], claim["holds"]) for claim in judged], [("a", 0.95, True), ("b", 0.5, False)])

    def test_the_claims_that_are_there_can_be_judged(self):
        claims = json.loads((real_vs_sim.FOLDER / "claims.json").read_text())
        all_rows = [
            real_vs_sim.row_of(case, system, 10.0, found([10.0])) for case in real_vs_sim.CASES for system in real_vs_sim.SYSTEMS
        ]
        self.assertEqual(len(real_vs_sim.judge(all_rows, claims)), len(claims))

    def test_changes_are_the_same_for_both_sides(self):
        changes = {"message": '"64MiB"', "operations": "1"}
        self.assertEqual(real_vs_sim.sets("jobs", changes), ["--set", 'jobs.0.message="64MiB"', "--set", "jobs.0.operations=1"])
        self.assertEqual(real_vs_sim.sets("job", changes)[1], 'job.0.message="64MiB"')

    def test_every_case_has_its_files(self):
        for case in real_vs_sim.CASES:
            for name in ("plan.toml", *(f"{system}.toml" for system in real_vs_sim.SYSTEMS)):
                self.assertTrue((real_vs_sim.FOLDER / case / name).is_file(), f"{case}/{name}")

    def test_table_and_picture_show_every_row(self):
        text = real_vs_sim.table(rows(), real_vs_sim.judge(rows(), []), "loopback")
        self.assertIn("| idle | canary | 10.00 | 9.50 (9.00 to 10.00) | 0.950 | 18 | 50% | 25% |", text)
        picture = xml.etree.ElementTree.fromstring(real_vs_sim.picture(rows()))
        bars = [bar for bar in picture.iter("{http://www.w3.org/2000/svg}rect") if bar.get("fill") == "#cc6677"]
        self.assertEqual(len(bars), 3)

    def test_tables_take_the_place_of_older_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            readme = Path(folder) / "README.md"
            readme.write_text(f"before\n{real_vs_sim.BEGIN}\nold\n{real_vs_sim.END}\nafter\n")
            real_vs_sim.write_readme(readme, "new")
            self.assertEqual(readme.read_text(), f"before\n{real_vs_sim.BEGIN}\nnew\n{real_vs_sim.END}\nafter\n")


if __name__ == "__main__":
    unittest.main()
