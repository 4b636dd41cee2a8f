"""What programs leave behind is found, ended and told; what ends by itself is none of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import leftovers
import rust_tests


class Leftovers(unittest.TestCase):
    """Processes and names."""

    def start(self, script: str, mark: str) -> subprocess.CompletedProcess[bytes]:
        """Runs a program to its end."""
        return subprocess.run([sys.executable, "-c", script], env=leftovers.marked(os.environ, mark), check=True)

    def test_a_daemon_of_a_program_that_is_over_is_found_ended_and_told(self) -> None:
        mark = f"test-{os.getpid()}-daemon"
        self.start("import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)", mark)
        left = leftovers.after(mark, grace_s=0.2)
        self.assertEqual(len(left), 1)
        self.assertRegex(left[0], r"^left behind: process \d+: sleep 1000$")
        self.assertEqual(leftovers.when_over(lambda: leftovers.processes(mark)), {}, "it has been ended")

    def test_a_process_that_is_about_to_end_is_waited_for_and_nothing_costs_no_time(self) -> None:
        mark = f"test-{os.getpid()}-short"
        self.start("import subprocess; subprocess.Popen(['sleep', '0.3'])", mark)
        self.assertEqual(leftovers.after(mark), [])
        begin = time.monotonic()
        self.assertEqual(leftovers.after("nobody"), [])
        self.assertLess(time.monotonic() - begin, leftovers.GRACE_S / 2)

    def test_names_of_fanin_are_found_and_those_of_others_are_not(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "fanin-99999999-a").touch()
            (Path(folder) / f"fanin-{os.getpid()}-b").touch()
            (Path(folder) / "else").touch()
            with mock.patch.object(leftovers, "NAMES", {"shared memory": Path(folder), "network namespace": Path(folder) / "none"}):
                self.assertEqual(leftovers.names(), {"shared memory fanin-99999999-a"})

    def test_a_test_program_that_leaves_a_process_has_failed(self) -> None:
        script = "sleep 1000 & echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured'"
        with mock.patch.object(leftovers, "GRACE_S", 0.2), mock.patch.object(leftovers.after, "__defaults__", (0.2,)):
            outcome = rust_tests.run(rust_tests.Program("bad", ("sh", "-c", script), Path("/")), [], os.environ)
        self.assertEqual((outcome.code, outcome.counts), (1, (3, 0, 0)))
        self.assertRegex(outcome.output, r"left behind: process \d+: sleep 1000")


if __name__ == "__main__":
    unittest.main()
