"""Tests of rina_real.py, without running anything."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rina_real
from readme_tables import BEGIN, END


def row(case, system, measured, idle=0.6):
    """A line of the table."""
    return {
        "case": case,
        "system": system,
        "message_bytes": 1 << 20,
        "simulated_mbit_s": 4.0,
        "measured_mbit_s": measured,
        "measured_lowest_mbit_s": measured,
        "measured_highest_mbit_s": measured,
        "ratio": measured / 4.0,
        "sent_again": 0,
        "cpu_idle_share": idle,
        "cpu_used_share": 0.2,
    }


def found(changes):
    """What a testbed says of a workload."""
    operation = {"exact": True, "goodput_mbit_s": 4.0, "workers": [{"counters": {"retransmitted": {"timeout": 2}}}]}
    job = {"message_bytes": 1 << 20, "goodput_mbit_s_median": 4.0, "operations": [operation] * int(changes["operations"])}
    return {"jobs": [job], "streams": [], "cpu_idle_share": 0.5, "cpu_used_share": 0.25}


class Tests(unittest.TestCase):
    def test_claims_are_judged_by_rows_that_count(self):
        value = {"case": "long", "system": "rina-all", "of": "measured_mbit_s"}
        over = {"case": "long", "system": "ring", "of": "measured_mbit_s"}
        claims = [{"id": "more", "text": "t", "value": {**value, "over": over}, "window": [1.0, None]}]
        [judged] = rina_real.judged_by([row("long", "rina-all", 6.0), row("long", "ring", 4.0)], claims)
        self.assertEqual((judged["measured"], judged["holds"]), (1.5, True))
        self.assertEqual(rina_real.judged_by([row("long", "rina-all", 6.0), row("long", "ring", 4.0, idle=0.1)], claims), [])
        text = rina_real.table([row("long", "ring", 4.0, idle=0.1)], [judged], "loopback", "alone")
        self.assertIn("**does not count**: less than 30% idle", text)

    def test_every_claim_is_of_a_case_and_a_system(self):
        for claim in json.loads((rina_real.FOLDER / "claims.json").read_text(encoding="utf-8")):
            for place in (claim["value"], claim["value"].get("over", claim["value"])):
                self.assertIn(place["case"], rina_real.CASES)
                self.assertIn(place["system"], rina_real.SYSTEMS)
        for workload, _ in rina_real.SYSTEMS.values():
            self.assertTrue((rina_real.FOLDER / workload).exists())

    def test_all_rows_are_run_and_written(self):
        simulated = [{"series": system, "goodput_gbps": 0.004, "census": "exact", "failure": None} for system in rina_real.SYSTEMS]

        def output_of(command):
            if command[1] == "sim":
                return simulated
            return found(dict(word.removeprefix("job.0.").split("=") for word in command if word.startswith("job.0.")))

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(rina_real, "output_of", output_of):
            readme = Path(folder) / "README.md"
            readme.write_text(f"before\n{BEGIN}\n{END}\nafter\n", encoding="utf-8")
            self.assertEqual(rina_real.main(["--place", "loopback", "--out", folder, "long"]), 0)
            results = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))
            self.assertEqual([row["system"] for row in results["rows"]], list(rina_real.SYSTEMS))
            self.assertIn("| 1024 KiB | rina-one | 4.00 | 4.00 (4.00 to 4.00) | 1.00 |", readme.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
