"""Tests of a2tp_real.py, without running anything."""

import tempfile
import unittest
from pathlib import Path

import a2tp_real
from readme_tables import BEGIN, END
from real_vs_sim import RunError, write_readme

try:
    import tomllib
except ImportError:
    tomllib = None


def operation(begun_s, ended_s, goodput=9.0):
    """An operation that a testbed tells of."""
    worker = {"counters": {"retransmitted": {"timeout": 1}}}
    return {"begun_s": begun_s, "ended_s": ended_s, "goodput_mbit_s": goodput, "exact": True, "workers": [worker, worker]}


def found(rows):
    """Two jobs: A from 0 to 10 s with a pause, B from 4 to 12 s."""
    a = {"goodput_mbit_s_median": 9.0, "operations": [operation(0.0, 6.5), operation(7.5, 10.0)]}
    b = {"goodput_mbit_s_median": 2.5, "operations": [operation(4.0, 12.0, 2.5)]}
    return {"jobs": [a, b], "series": rows, "cpu_idle_share": 0.5, "cpu_used_share": 0.25}


def series():
    """A row for each second and job; what may not count is far off."""
    goodputs = {6: 8.0, 7: 1_000.0, 8: 1_000.0, 9: 6.0, 10: 7.0}
    return [
        {
            "at_s": float(at),
            "interval_s": 1.0,
            "job": job,
            "goodput_mbit_s": goodputs.get(at, 1_000.0) if job == 0 else 2.0,
            "slots": 10.0 * (2 - job),
        }
        for at in range(1, 13)
        for job in (0, 1)
    ]


def measured(**changes):
    """A system's real runs."""
    whole = {"alone_mbit_s": 9.0, "halved_mbit_s": 5.0, "idle": 0.5, "used": 0.25, "attempts": 1, "a_mbit_s": [9.0, 8.0], "sent_again": 3}
    whole |= {"goodput_a": 4.5, "goodput_b": 2.0, "b_mbit_s": 2.25, "slots_a": 0.5, "slots_b": 0.25}
    return {**whole, **changes}


class Tests(unittest.TestCase):
    def test_what_both_jobs_get_is_taken_where_both_run_and_have_settled(self):
        # Beside each other from 4 to 10 s, from 5.5 s without the first quarter; A's pause is in two of the rows that are left.
        means = a2tp_real.together(found(series()))
        self.assertEqual(means, {"goodput_a": 6.5, "goodput_b": 2.0, "slots_a": 0.5, "slots_b": 0.25})
        with self.assertRaisesRegex(RunError, "did not run beside each other"):
            a2tp_real.together(found([]))

    def test_runs_count_where_aggregators_were_the_limit_and_processors_were_not(self):
        self.assertEqual(a2tp_real.objections(measured()), [])
        self.assertEqual(a2tp_real.objections(measured(idle=0.29)), ["processors were 29% idle, less than 30%"])
        self.assertEqual(a2tp_real.objections(measured(halved_mbit_s=8.91)), ["A alone keeps 0.99 of its goodput with half of its pool"])

    def test_packets_that_were_sent_again_are_counted_over_all_workers(self):
        self.assertEqual(a2tp_real.sent_again(found([])), 6)

    def test_processors_are_idle_while_nobody_uses_them(self):
        before, after = "cpu  10 0 10 80 0 0 0 0 0 0\nrest", "cpu  40 0 40 110 10 0 0 0 0 0\nrest"
        self.assertEqual(a2tp_real.idle_share(before, after), 0.4)
        self.assertEqual(a2tp_real.idle_share(before, before), 0.0)

    def test_the_table_says_shares_of_the_most_and_which_runs_do_not_count(self):
        row = {"simulated": measured(alone_mbit_s=10.0), "measured": measured(), "objections": []}
        rows = {"atp": row, "a2tp": {**row, "measured": measured(attempts=2), "objections": ["nobody was idle"]}}
        text = a2tp_real.table(rows, "loopback", "alone")
        self.assertIn("| atp | goodput of A | 0.72 | 0.45 | 0.50 |", text)
        self.assertIn("| a2tp | aggregators of B | 1.2 to 4.4 % | 25 % | 25 % |", text)
        self.assertIn("| atp | 9.00, 8.00 | 9.00, 5.00 | 10.00, 5.00 | 50% | 25% | 3 | counts |", text)
        self.assertIn("**does not count**: nobody was idle |", text)
        with tempfile.TemporaryDirectory() as folder:
            readme = Path(folder) / "README.md"
            readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
            write_readme(readme, text)
            self.assertEqual(readme.read_text(encoding="utf-8"), f"before\n{BEGIN}\n{text}\n{END}\nafter\n")

    @unittest.skipUnless(tomllib, "it needs Python 3.11")
    def test_every_system_has_the_same_workload_on_both_sides(self):
        def read(name):
            return tomllib.loads((a2tp_real.FOLDER / name).read_text(encoding="utf-8"))

        fabric, plan = read("fabric.toml")["defaults"], read("simulated.toml")
        self.assertEqual((fabric["rate"], fabric["delay"]), (plan["network"]["rate"], plan["network"]["latency"]))
        self.assertEqual((fabric["buffer"], fabric["ecn_mark"]), (plan["network"]["queue"], plan["network"]["ecn"]))
        for number, (system, pool) in enumerate(a2tp_real.POOLS.items()):
            two, alone, simulated = read(f"{system}.toml"), read(f"{system}_alone.toml"), plan["series"][number]
            self.assertEqual(two["switches"]["aggregators"], a2tp_real.AGGREGATORS)
            self.assertEqual(alone["switches"]["aggregators"], pool)
            self.assertEqual(simulated["name"], system)
            for real, other in zip(two["job"], plan["jobs"], strict=True):
                self.assertEqual(real["system"], system)
                self.assertEqual([f"host{host}" for host in other["placement"]], real["hosts"])
                for key in ("message", "payload", "window", "rto_initial", "rto_min", "patience"):
                    self.assertEqual(real[key], other[key], f"{system}: {key}")
            start = simulated["set"].get("jobs.1.start", plan["jobs"][1]["start"])
            self.assertEqual(two["job"][1]["start"], start)


if __name__ == "__main__":
    unittest.main()
