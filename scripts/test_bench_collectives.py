"""Tests of bench_collectives.py and of what it is made of; nothing is installed, no namespace is made."""

import random
import signal
import struct
import subprocess
import sys
import time
import unittest
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import bench_collectives as bench
import garbage
import measurement
import namespaces
import openmpi
import packages
import processes

QUIET = "cpu  10 0 10 100 20 0 0 0 0 0\ncpu0 1 2 3\n"
BUSY = "cpu  80 0 20 110 20 0 0 0 0 0\ncpu0 1 2 3\n"


def row(rate, cpu=1.0, wrong=0):
    return {"algbw_mb_s": rate, "time_us": 1e6 / rate, "cpu_s_per_gib": cpu, "wrong": wrong}


def series(*rates):
    """A contender that gives one row after the other."""
    rows = iter([row(rate) for rate in rates])
    return lambda: next(rows)


def is_running(pid):
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ignore(_text):
    """Progress is of no interest here."""


class OnlyRow(unittest.TestCase):
    def test_the_measurement_is_found_behind_what_libraries_say(self):
        self.assertEqual(measurement.only_row('[W socket.cpp] hello\n[{"time_us": 3}]\n'), {"time_us": 3})

    def test_anything_else_is_a_failure_that_shows_it(self):
        for text in ("", "fast", "[]", "[1]", '[{"time_us": 1}, {"time_us": 2}]', '[{"time_us": 1}'):
            with self.assertRaises(processes.Failed):
                measurement.only_row(text)
        with self.assertRaisesRegex(processes.Failed, "no route"):
            measurement.only_row("no route")


class IdleShare(unittest.TestCase):
    def test_it_is_the_idle_part_of_the_ticks_between(self):
        # 70 user, 10 system, 10 idle.
        self.assertAlmostEqual(bench.idle_share(QUIET, BUSY), 10 / 90)

    def test_no_tick_between_is_no_division_by_zero(self):
        self.assertEqual(bench.idle_share(QUIET, QUIET), 0.0)


class TakeTurns(unittest.TestCase):
    def test_every_round_has_all_contenders_from_either_end(self):
        order = []
        contenders = {name: (lambda name=name: (order.append(name), row(1.0))[1]) for name in "abc"}
        results, failed = bench.take_turns(contenders, 3, ignore)
        self.assertEqual("".join(order), "abccbaabc")
        self.assertEqual({name: len(rows) for name, rows in results.items()}, {"a": 3, "b": 3, "c": 3})
        self.assertEqual(failed, {})
        self.assertTrue(all("idle_share" in each and "load_average" in each for each in results["a"]))

    def test_one_that_fails_is_told_and_left_out_and_the_others_go_on(self):
        def broken():
            raise processes.Failed("rank 2 died")

        told = []
        results, failed = bench.take_turns({"good": series(1, 2), "broken": broken}, 2, told.append)
        self.assertEqual(list(results), ["good"])
        self.assertEqual(failed, {"broken": "rank 2 died"})
        self.assertTrue(any("rank 2 died" in text for text in told))

    def test_wrong_elements_are_a_failure(self):
        results, failed = bench.take_turns({"fast": lambda: row(1e9, wrong=3)}, 1, ignore)
        self.assertEqual(results, {})
        self.assertEqual(failed, {"fast": "3 elements are wrong"})


class Ratios(unittest.TestCase):
    GOAL = bench.Goal("rate", "algbw_mb_s", "ours", "theirs", ">=", 1.5)

    def test_it_is_the_median_of_the_ratios_within_rounds(self):
        # A machine that becomes ten times slower in the last round does not change them.
        results = {"ours": [row(200.0), row(160.0), row(18.0)], "theirs": [row(100.0), row(100.0), row(10.0)]}
        found = bench.ratio(self.GOAL, results)
        self.assertEqual((found.median, found.lowest, found.highest, found.reached), (1.8, 1.6, 2.0, True))

    def test_goals_have_a_direction(self):
        results = {"ours": [row(120.0, cpu=3.0)], "theirs": [row(100.0, cpu=1.0)]}
        self.assertIs(bench.ratio(self.GOAL, results).reached, False)
        self.assertIs(bench.ratio(bench.Goal("cpu", "cpu_s_per_gib", "ours", "theirs", "<=", 2.0), results).reached, False)
        self.assertIs(bench.ratio(bench.Goal("cpu", "cpu_s_per_gib", "ours", "theirs", "<=", 3.0), results).reached, True)
        self.assertIsNone(bench.ratio(bench.Goal("shown", "cpu_s_per_gib", "ours", "theirs"), results).reached)

    def test_what_was_not_measured_has_no_line(self):
        self.assertEqual(bench.verdicts([self.GOAL], {"ours": [row(1.0)]}), [])
        self.assertIn("missed", bench.verdicts([self.GOAL], {"ours": [row(1.0)], "theirs": [row(1.0)]})[0])

    def test_the_table_shows_medians(self):
        rows = [row(rate) | {"idle_share": 0.25, "load_average": 3.0} for rate in (1.0, 100.0, 50.0)]
        line = bench.table({"gloo": rows})[1]
        self.assertEqual(line.split(), ["gloo", "20.000", "50.0", "1.0", "to", "100.0", "1.00", "25%", "3.0"])


class Cases(unittest.TestCase):
    def test_goals_name_contenders_that_exist(self):
        for case in bench.CASES[:2]:
            with ExitStack() as stack:
                names = set(case.contenders(stack, bench.Setup()))
            self.assertTrue(all({goal.ours, goal.theirs} <= names for goal in case.goals), case.name)

    def test_a_missing_peer_leaves_only_itself_out(self):
        setup = bench.Setup(skipped={"openmpi": "not root"})
        with ExitStack() as stack:
            self.assertEqual(set(bench.CASES[0].contenders(stack, setup)), {bench.UDP, bench.UDP_IN_PLACE, bench.MEMORY, bench.MEMORY_IN_PLACE, bench.GLOO})

    def test_a_case_that_cannot_run_is_skipped_with_its_reason(self):
        case = bench.Case("x", "X", lambda _stack, _setup: {}, [], lambda: "it needs root")
        with mock.patch("builtins.print") as shown:
            self.assertEqual(bench.run_case(case, bench.Setup(), 1), {"name": "x", "skipped": "it needs root"})
        self.assertTrue(any("it needs root" in str(call) for call in shown.mock_calls))


class Garbage(unittest.TestCase):
    #: A run of two datagrams of four bytes from port 7 to port 9 on loopback, as the kernel shows it.
    PACKET = b"\x45" + bytes(8) + b"\x11" + bytes(10) + struct.pack("!HHHH", 7, 9, 16, 0) + b"abcdefgh"
    FRAME = struct.pack("=BBHHHH", 0, 5, 0, 4, 0, 0) + bytes(14) + PACKET

    def test_the_first_datagram_of_a_run_is_found_if_it_goes_to_the_port(self):
        self.assertEqual(list(garbage.datagrams_of(self.FRAME, 9)), [(7, b"abcd")])
        self.assertEqual(list(garbage.datagrams_of(self.FRAME, 8)), [])
        self.assertEqual(list(garbage.datagrams_of(self.FRAME[:40], 9)), [])

    def test_what_is_sent_in_another_name_says_so(self):
        forged = garbage.in_the_name_of(7, "127.0.0.1", 9, b"abcd")
        self.assertEqual((len(forged), forged[12:16], forged[-4:]), (32, b"\x7f\x00\x00\x01", b"abcd"))
        self.assertEqual(struct.unpack("!HHHH", forged[20:28]), (7, 9, 12, 0))

    def test_a_wrong_bit_is_where_it_shows(self):
        dice, good = random.Random(3), bytes(40)
        for _ in range(200):
            bad = garbage.with_a_wrong_bit(good, dice)
            differing = [at for at in range(40) if bad[at] != good[at]]
            self.assertEqual(len(differing), 1)
            self.assertIn(differing[0], garbage.TELLING)
            self.assertTrue(differing[0] != 2 or bad[2] >= 16, "flags that mean something stay")

    def test_a_run_is_told_by_what_the_switch_says(self):
        name = 'fanin_switch_dropped_packets_total{reason="malformed"}'
        before = {"process_cpu_seconds_total": 1.0, "process_resident_memory_bytes": 100.0, name: 5.0}
        after = {"process_cpu_seconds_total": 3.0, "process_resident_memory_bytes": 90.0, name: 12.0}
        seen = bench.garbage_seen(before, after, {"sent": {"random": 40}, "seconds": 2.0}, 4.0, 1)
        self.assertEqual((seen["garbage_dropped"], seen["garbage_per_s"], seen["switch_cpu_share"]), ({"malformed": 7}, 20.0, 0.5))
        self.assertEqual((seen["switch_cpu_s_per_gib"], seen["resident_grown_bytes"]), (16.0, -10))
        lines = bench.told_of_garbage({bench.QUIET: [seen | {"switch_cpu_s_per_gib": 12.0}], bench.GARBAGE: [seen]})
        self.assertIn("20 packets a second, 40 random; dropped: 7 malformed", lines[0])
        self.assertIn("25.0%", lines[1])
        self.assertEqual(bench.told_of_garbage({bench.QUIET: [seen]}), [])


class OpenMpi(unittest.TestCase):
    def test_the_version_decides_how_shared_memory_is_called(self):
        self.assertEqual(openmpi.major_version("mpirun (Open MPI) 4.1.4\n\nReport bugs"), 4)
        self.assertEqual(openmpi.major_version("mpirun (Open MPI) 5.0.7"), 5)
        self.assertIsNone(openmpi.major_version("HYDRA build details"))
        self.assertIn("self,vader", openmpi.command(4, 4096, 10, "memory", 4))
        self.assertIn("self,sm", openmpi.command(4, 4096, 10, "memory", 5))
        self.assertIn("self,tcp", openmpi.command(4, 4096, 10, "tcp", 4))


class Packages(unittest.TestCase):
    def test_without_root_nothing_is_tried(self):
        with mock.patch.object(packages.os, "geteuid", return_value=1000), mock.patch.object(packages.shutil, "which", return_value="found"), \
                mock.patch.object(packages.subprocess, "run") as run:
            self.assertEqual(packages.missing(["a", "b"], lambda: False), "a and b is not installed and this user is not root")
            self.assertIsNone(packages.missing(["a"], lambda: True))
            run.assert_not_called()


class Namespaces(unittest.TestCase):
    def test_only_what_a_dead_process_has_left_is_swept(self):
        names = ["fanin-bench-10-bridge", "fanin-bench-11-0", "mine", "fanin-bench-x-0"]
        self.assertEqual(namespaces.stale(names, lambda pid: pid == 11), ["fanin-bench-10-bridge"])

    def test_without_root_they_are_an_obstacle(self):
        with mock.patch.object(namespaces.os, "geteuid", return_value=1000):
            self.assertEqual(namespaces.obstacle(), "network namespaces need root")

    def test_whatever_fails_half_way_everything_is_removed(self):
        deleted = []

        def run(command, **_options):
            if command[:3] == ["ip", "netns", "del"]:
                deleted.append(command[3])
            code = 2 if "tbf" in command else 0
            return subprocess.CompletedProcess(command, code, stdout="", stderr="no tbf here")

        with mock.patch.object(namespaces.subprocess, "run", run), self.assertRaisesRegex(namespaces.NoNetwork, "no tbf here"):
            namespaces.Star(2, "1gbit").__enter__()
        names = [namespaces.Star(2, "1gbit").name(who) for who in ("0", "switch", "bridge")]
        self.assertEqual(deleted, names)


class Processes(unittest.TestCase):
    def test_output_comes_back_and_failures_show_the_last_words(self):
        deadline = time.monotonic() + 60
        with processes.Crew() as crew:
            self.assertEqual(crew.finish(crew.start([sys.executable, "-c", "print(6 * 7)"]), deadline), "42\n")
            bad = crew.start([sys.executable, "-c", "import sys; sys.exit('no such switch')"])
            with self.assertRaisesRegex(processes.Failed, "no such switch"):
                crew.finish(bad, deadline)

    def test_a_word_is_waited_for_and_who_ends_or_says_something_else_is_named(self):
        deadline = time.monotonic() + 60
        with processes.Crew() as crew:
            speaker = crew.start([sys.executable, "-c", "import time; time.sleep(0.1); print('joins a, b', flush=True); time.sleep(600)"])
            crew.wait_until_it_says(speaker, "joins ", deadline)
            with self.assertRaisesRegex(processes.Failed, "has not said 'leaves' in time: joins a, b"):
                crew.wait_until_it_says(speaker, "leaves", time.monotonic())
            with self.assertRaisesRegex(processes.Failed, "has ended with 1: no such port"):
                crew.wait_until_it_says(crew.start([sys.executable, "-c", "import sys; sys.exit('no such port')"]), "joins ", deadline)

    def test_nothing_outlives_the_block_not_even_what_a_process_has_started(self):
        nested = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
        with self.assertRaises(KeyboardInterrupt), processes.Crew() as crew:
            process = crew.start([sys.executable, "-c", nested])
            out = crew._files[process.pid][0]
            while not (text := (out.seek(0), out.read())[1].strip()):
                time.sleep(0.01)
            raise KeyboardInterrupt
        self.assertEqual(process.returncode, -signal.SIGTERM)
        # It has been killed by then, but is dead only when the kernel comes to it.
        while is_running(text):
            time.sleep(0.01)

    def test_processor_time_is_that_of_the_process(self):
        self.assertGreaterEqual(processes.cpu_seconds(1), 0.0)


if __name__ == "__main__":
    unittest.main()
