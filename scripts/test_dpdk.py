"""Tests of dpdk.py: what it says of packets that differ. Playing them needs DPDK, and is its own check."""

import struct
import tempfile
import unittest
from pathlib import Path

import dpdk


def capture(packets, magic=0xA1B2C3D4):
    """A file of these packets."""
    header = struct.pack("<IHHIIII", magic, 2, 4, 0, 0, 65_535, 1)
    return header + b"".join(struct.pack("<IIII", 1, number, len(one), len(one)) + one for number, one in enumerate(packets))


class Frames(unittest.TestCase):
    def read(self, content):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            return dpdk.frames(Path(file.name))

    def test_packets_of_both_resolutions_are_read(self):
        packets = [b"one", b"", b"three"]
        self.assertEqual(self.read(capture(packets)), packets)
        self.assertEqual(self.read(capture(packets, 0xA1B23C4D)), packets)
        self.assertEqual(self.read(capture([])), [])

    def test_what_is_no_capture_is_named(self):
        for content in (b"", b"text" * 10, capture([])[:20]):
            with self.assertRaisesRegex(dpdk.Failed, "no pcap file"):
                self.read(content)


class Differences(unittest.TestCase):
    def test_the_same_packets_do_not_differ(self):
        self.assertIsNone(dpdk.difference(0, [b"a", b"b"], [b"a", b"b"]))

    def test_the_first_byte_that_differs_is_named(self):
        text = dpdk.difference(3, [b"same", b"\x01\x02\x03"], [b"same", b"\x01\x09\x03"])
        self.assertEqual(text, "port 3, packet 1: differs from byte 1 on: 09 03, expected 02 03")

    def test_a_packet_that_is_cut_differs_behind_its_end(self):
        self.assertEqual(dpdk.difference(0, [b"\x01\x02"], [b"\x01"]), "port 0, packet 0: differs from byte 1 on: , expected 02")

    def test_missing_and_additional_packets_are_counted(self):
        self.assertEqual(dpdk.difference(1, [b"a", b"b"], [b"a"]), "port 1: 1 packets, expected 2")
        self.assertEqual(dpdk.difference(1, [], [b"a"]), "port 1: 1 packets, expected 0")


class Mistakes(unittest.TestCase):
    def test_every_program_has_mistakes_and_each_is_in_one_place(self):
        programs = {path.stem for path in dpdk.SOURCES.glob("*.spec")}
        self.assertEqual(set(dpdk.MISTAKES), programs)
        for program, mistakes in dpdk.MISTAKES.items():
            text = (dpdk.SOURCES / f"{program}.spec").read_text()
            for line, instead in mistakes:
                self.assertEqual(text.count(line + "\n"), 1, line)
                self.assertNotEqual(line, instead)


if __name__ == "__main__":
    unittest.main()
