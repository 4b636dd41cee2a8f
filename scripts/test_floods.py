"""Tests of floods.py; no namespace and no cgroup is made."""

import json
import socket
import struct
import tempfile
import unittest
from pathlib import Path

import floods
import garbage

TARGET = ("10.231.0.250", 7_800)
#: A packet of the hop format with a payload that can be altered.
PAYLOAD = bytes([7, 1, 0, 0]) + bytes(range(200))
KNOWN = [("10.231.0.1", 4_001, PAYLOAD), ("10.231.0.2", 4_002, PAYLOAD[::-1])]


def parts(packet):
    """Source, target and payload of a datagram with its headers."""
    addresses = [socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16)]
    ports = struct.unpack_from("!HH", packet, garbage.IP_BYTES)
    return (addresses[0], ports[0]), (addresses[1], ports[1]), packet[garbage.IP_BYTES + garbage.UDP_BYTES :]


class TestFloods(unittest.TestCase):
    def test_what_is_replayed_is_what_was_recorded_in_the_name_of_its_sender(self):
        found = [parts(packet) for packet in floods.packets("replayed", KNOWN, TARGET)]
        self.assertEqual(found, [((address, port), TARGET, payload) for address, port, payload in KNOWN])

    def test_what_is_spoofed_is_in_a_ranks_name_and_never_what_the_rank_has_made(self):
        found = [parts(packet) for packet in floods.packets("spoofed", KNOWN, TARGET)]
        self.assertEqual(len(found), 3 * len(KNOWN))
        for source, target, payload in found:
            made = next(payload for address, port, payload in KNOWN if (address, port) == source)
            self.assertEqual(target, TARGET)
            self.assertNotEqual(payload, made)

    def test_what_is_random_has_no_headers_of_others(self):
        found = floods.packets("random", [], TARGET)
        self.assertTrue(found and all(0 < len(packet) < 1_400 for packet in found))
        self.assertEqual(found, floods.packets("random", [], TARGET))

    def test_recorded_packets_are_read_as_they_were_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "known.json"
            path.write_text(json.dumps([(address, port, payload.hex()) for address, port, payload in KNOWN]))
            self.assertEqual(floods.read_known(str(path)), KNOWN)

    def test_ratios_are_told_with_their_spread(self):
        runs = [(0.9, 90.0, 9_990.0), (1.1, 100.0, 10_000.0), (1.0, 95.0, 9_995.0)]
        keys = {"none": [100.0, 200.0], "mac": [50.0, 120.0], "seal": [90.0, 190.0]}
        found = {"floods": {"random": runs}, "keys": keys, "dropped": {"unauthenticated": 5_000}, "load": (1.0, 2.0), "share": 0.25}
        text = "\n".join(floods.told(found))
        self.assertIn("ratio 1.00 (0.90 to 1.10)", text)
        self.assertIn("ratio to none 0.55 (0.50 to 0.60)", text)
        self.assertIn("dropped: 5,000 unauthenticated", text)


if __name__ == "__main__":
    unittest.main()
