"""Tests of bench_peers.py and ns3.py that need neither ns-3 nor a build."""

import unittest
from unittest import mock

import bench_peers
import ns3


def run_of(rate):
    return {"name": "w1", "packet_hops": 10, "packet_hops_per_cpu_s": rate}


class ParseMeasurement(unittest.TestCase):
    def test_an_object_and_a_list_of_one_are_understood(self):
        for text in ('{"name": "w1", "packet_hops": 3}', '[{"name": "w1", "packet_hops": 3}]\n'):
            self.assertEqual(bench_peers.parse_measurement(text)["packet_hops"], 3)

    def test_anything_else_is_an_error(self):
        for text in ("", "fast", "[]", "[1]", '{"packet_hops": 3}', '{"name": "ring"}', '[{"name": "w1"}, {"name": "w1"}]'):
            with self.assertRaises(bench_peers.BenchError):
                bench_peers.parse_measurement(text)


class InstructionsPerHop(unittest.TestCase):
    def test_it_is_the_slope_so_that_building_the_network_does_not_count(self):
        def count(command):
            hops = 4 * int(command[0])
            return 1_000_000 + 150 * hops, f'{{"name": "w1", "packet_hops": {hops}}}'

        self.assertEqual(bench_peers.instructions_per_hop(count, lambda packets: [str(packets)]), 150)

    def test_a_program_that_ignores_the_number_of_packets_is_refused(self):
        with self.assertRaises(bench_peers.BenchError):
            bench_peers.instructions_per_hop(lambda _command: (5, '{"name": "w1", "packet_hops": 7}'), lambda packets: [str(packets)])


class Summary(unittest.TestCase):
    def test_the_ratio_is_that_of_medians(self):
        results = {"fanin": [run_of(rate) for rate in (90.0, 100.0, 900.0)], "ns-3": [run_of(rate) for rate in (1.0, 4.0, 5.0)]}
        text = bench_peers.summary(results, {"ns-3": 8000.0})
        fanin, peer = text.splitlines()[1:]
        self.assertTrue(fanin.startswith("fanin") and fanin.endswith(" 25.00"), fanin)
        self.assertIn("not counted", fanin)
        self.assertIn("8,000", peer)


class Ns3(unittest.TestCase):
    def test_without_root_a_missing_package_is_an_obstacle_with_its_reason(self):
        missing = mock.Mock()
        missing.exists.return_value = False
        with mock.patch.object(ns3, "HEADER", missing), mock.patch.object(ns3.os, "geteuid", return_value=1000), \
                mock.patch.object(ns3.shutil, "which", return_value="found"), mock.patch.object(ns3.subprocess, "run") as run:
            self.assertEqual(ns3.obstacle(), "libns3-dev is not installed and this user is not root")
            run.assert_not_called()

    def test_lost_packets_are_complaints(self):
        good = {"packets": 5, "packets_delivered": 5, "packets_dropped": 0, "packet_hops": 20, "packet_hops_expected": 20}
        self.assertEqual(ns3.complaints(good), [])
        self.assertEqual(len(ns3.complaints(good | {"packets_delivered": 4, "packets_dropped": 1, "packet_hops": 19})), 3)


if __name__ == "__main__":
    unittest.main()
