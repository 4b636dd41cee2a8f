"""Tests of test_all.py: skips carry their reason, failures decide the exit code."""

import contextlib
import io
import threading
import unittest

import test_all
from test_all import Check, Outcome, run_checks


def never(_command):
    raise AssertionError("a skipped check was run")


class RunChecks(unittest.TestCase):
    def run_quietly(self, checks, run, jobs=1):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            outcome = run_checks(checks, run, jobs)
        return outcome, output.getvalue()

    def test_an_obstacle_is_a_skip_that_names_check_and_reason(self):
        outcome, output = self.run_quietly([Check("namespaces", lambda: "it needs root", ["true"])], never)
        self.assertEqual(outcome, Outcome(skipped=["namespaces"]))
        self.assertEqual(output, "skipped: namespaces because it needs root\n")

    def test_a_failure_does_not_stop_the_checks_after_it(self):
        codes = {"a": 3, "b": 0}
        checks = [Check(name, lambda: None, [name]) for name in codes]
        outcome, output = self.run_quietly(checks, lambda command: (codes[command[0]], ""))
        self.assertEqual(outcome, Outcome(passed=["b"], failed={"a": ""}))
        self.assertIn("failed: a in 0 s, exit code 3", output)
        self.assertIn("passed: b", output)

    def test_the_summary_names_what_failed_and_shows_the_end_of_what_it_printed(self):
        lines = [f"line {number}" for number in range(1000)]
        outcome, _ = self.run_quietly([Check(name, lambda: None, [name]) for name in "ab"], lambda command: (int(command[0] == "a"), "\n".join(lines) + "\n"))
        summary = outcome.summary().splitlines()
        self.assertEqual(summary[0], "::: the end of a:")
        self.assertEqual(summary[1:-1], lines[-test_all.LINES_OF_A_FAILURE :])
        self.assertEqual(summary[-1], "1 passed, 1 failed (a), 0 skipped")

    def test_two_run_at_a_time_and_what_measures_alone(self):
        together = threading.Barrier(2, timeout=60)
        under_way, most = [], []

        def run(command):
            under_way.append(command[0])
            most.append(len(under_way))
            if command[0] != "measure":
                together.wait()
            under_way.remove(command[0])
            return 0, f"what {command[0]} prints\n"

        checks = [Check("measure", lambda: None, ["measure"], alone=True), *(Check(name, lambda: None, [name]) for name in "abcd")]
        outcome, output = self.run_quietly(checks, run, jobs=2)
        self.assertEqual(sorted(outcome.passed), ["a", "b", "c", "d", "measure"])
        self.assertEqual(max(most), 2)
        self.assertEqual(most[-1], 1)
        for name in "abcd":
            self.assertIn(f"what {name} prints\npassed: {name} in 0 s\n", output)
        self.assertIn("passed: measure", output)

    def test_names_of_checks_are_unique(self):
        names = [check.name for check in test_all.CHECKS]
        self.assertEqual(len(names), len(set(names)))

    def test_an_unknown_name_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit) as stop:
            test_all.main(["no-such-check"])
        self.assertEqual(stop.exception.code, 2)
        self.assertIn("ns3-peer", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
