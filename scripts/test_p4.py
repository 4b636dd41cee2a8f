"""Tests of p4.py: what differs is found, and named by packet and field; without tools it is a skip with a reason."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import p4
from p4 import Case, Difference, Packet

GOLDEN = p4.PROGRAMS / "golden"


def a_case() -> Case:
    return Case(GOLDEN / "switchml-two-jobs-1")


class Files(unittest.TestCase):
    def test_packets_are_read_as_they_are_written(self):
        packets = [Packet(5, b"abc"), Packet(3_000_001, b""), Packet(7, bytes(99))]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "p0_in.pcap"
            p4.write_pcap(path, packets)
            self.assertEqual(p4.read_pcap(path), packets)
            self.assertEqual(p4.read_pcap(Path(folder) / "none.pcap"), [])

    def test_a_file_of_the_corpus_is_written_again_as_it_is(self):
        case = a_case()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "again.pcap"
            p4.write_pcap(path, case.into(1))
            self.assertEqual(path.read_bytes(), (case.folder / "p1_in.pcap").read_bytes())
        self.assertGreater(len(case.into(1)), 10)

    def test_packets_of_all_ports_come_in_the_order_of_their_times(self):
        case = a_case()
        packets = case.in_order()
        self.assertEqual(len(packets), case.about["packets"])
        self.assertEqual(packets, sorted(packets))
        due = case.due()
        for port in case.ports:
            length = (case.folder / f"p{port}_out.pcap").stat().st_size
            self.assertEqual(max(bytes_ for (to, _), bytes_ in due.items() if to == port), length)


class Differences(unittest.TestCase):
    def test_the_same_packets_do_not_differ(self):
        out = a_case().out(1)
        later = [Packet(packet.at_us + 9, packet.frame) for packet in out]
        self.assertIsNone(p4.first_difference(1, out, later))
        self.assertIsNone(p4.first_difference(1, [], []))

    def test_one_packet_more_or_less_is_found(self):
        out = a_case().out(1)
        self.assertEqual(p4.first_difference(1, out, out[:-1]), Difference(1, len(out) - 1, out[-1], None))
        self.assertEqual(p4.first_difference(1, out[:-1], out), Difference(1, len(out) - 1, None, out[-1]))

    def test_a_difference_names_its_field_its_element_and_its_cause(self):
        case = a_case()
        wanted = case.out(1)[0]
        frame = bytearray(wanted.frame)
        # The slot's lowest bit, and the second element's highest byte.
        frame[49] ^= 1
        frame[56] ^= 0x80
        found = p4.first_difference(1, case.out(1), [Packet(0, bytes(frame))])
        assert found is not None
        words = p4.in_words(case, found)
        self.assertIn("switchml-two-jobs-1: port 1, packet 0", words)
        slot = p4.fields(wanted.frame, case.about["headers"])["switchml.slot"]
        self.assertIn(f"switchml.slot: {slot:#x} expected, {slot ^ 1:#x} came", words)
        self.assertIn("element 1: ", words)
        self.assertIn("for the packet that came by port ", words)
        self.assertNotIn("ipv4.src:", words)

    def test_a_missing_packet_is_shown_whole(self):
        case = a_case()
        words = p4.in_words(case, Difference(1, 0, case.out(1)[0], None))
        self.assertIn("the program sends nothing more, where this is due:", words)
        self.assertIn("switchml.job = ", words)

    def test_every_case_names_headers_that_there_are(self):
        formats = json.loads((p4.PROGRAMS / "fields.json").read_text())
        folders = sorted(GOLDEN.iterdir())
        self.assertGreaterEqual(len(folders), 6)
        for folder in folders:
            about = Case(folder).about
            self.assertTrue(set(about["headers"]) <= set(formats), folder.name)
            self.assertTrue((p4.PROGRAMS / f"{about['program']}.p4").exists(), folder.name)


class Mutants(unittest.TestCase):
    def test_every_mistake_is_one_change_of_its_program(self):
        listed = json.loads((p4.PROGRAMS / "mutants.json").read_text())
        for program, mutants in listed.items():
            # What a program in TNA does is held against its v1model version's packets, whose mistakes are many.
            self.assertGreaterEqual(len(mutants), 3 if program.startswith("tna/") else 10, program)
            for file, before, after, what in mutants:
                self.assertEqual((p4.PROGRAMS / file).read_text().count(before), 1, f"{program}: {what}")
                self.assertNotEqual(before, after)


class Skips(unittest.TestCase):
    def test_without_tools_the_reason_is_said(self):
        with mock.patch("shutil.which", return_value=None):
            self.assertIn("p4c", p4.obstacle() or "")
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                self.assertEqual(p4.main(["check"]), 0)
            self.assertTrue(output.getvalue().startswith("skipped: none of p4c-bm2-ss, p4c is on PATH"))
        with mock.patch("shutil.which", side_effect=lambda name: None if name == "simple_switch" else name):
            self.assertEqual(p4.obstacle(), "simple_switch is not on PATH: docs/p4.md says how to build it")


if __name__ == "__main__":
    unittest.main()
