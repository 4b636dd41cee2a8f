"""Tests of rdma.py, guests.py and trace_tests.py that need no guests."""

import socket
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import guests
import rdma
import trace_tests
import uplink
from processes import Failed

CONSOLE = """guest: ready
operation=0 elements=5000 messages=1 seconds=0.0162 wrong=0 unsummed=0
operation=1 elements=5000 messages=1 seconds=0.5000 wrong=3 unsummed=1
done rank=2 wrong=3 unsummed=1
guest: ended with 1
guest: counter out_of_seq_request=4
"""


class Rdma(unittest.TestCase):
    def test_a_console_says_what_came_out(self) -> None:
        found = rdma.outcome(CONSOLE)
        self.assertEqual((found["wrong"], found["unsummed"], found["seconds"]), (3, 1, [0.0162, 0.5]))
        self.assertEqual(found["counters"], {"out_of_seq_request": 4})
        with self.assertRaisesRegex(Failed, "Kernel panic"):
            rdma.outcome("Kernel panic")

    def test_switch_and_guests_have_the_two_ends_of_the_same_cables(self) -> None:
        crew = rdma.plugged(rdma.CASES["loss"], 3)
        command = rdma.switch_command("fanin", rdma.CASES["loss"], crew)
        for guest in crew:
            self.assertIn(f"udp:127.0.0.1:{guest.switch_port}/127.0.0.1:{guest.card_port}", command[3])
            words = guest.command(Path("kernel"), Path("root"))
            self.assertTrue(any(f"local.port={guest.card_port},remote.type=inet,remote.host=127.0.0.1,remote.port={guest.switch_port}" in word for word in words))
        self.assertEqual(command[4:], ["--rdma-ring", "7:i32:sum:10.99.0.1,10.99.0.2,10.99.0.3:silence=60s", "--loss", "0.01"])
        self.assertNotIn("--rdma-ring", rdma.switch_command("fanin", rdma.CASES["control"], crew))

    def test_each_rack_has_its_guests_and_an_end_of_the_cable_between_them(self) -> None:
        case = rdma.CASES["racks"]
        crew = rdma.plugged(case, 4)
        below = rdma.switch_command("fanin", case, crew, None, (crew[:2], "udp:127.0.0.1:1/127.0.0.1:2", True))
        above = rdma.switch_command("fanin", case, crew, None, (crew[2:], "udp:127.0.0.1:3/127.0.0.1:4", False))
        everybody = "7:i32:sum:10.99.0.1,10.99.0.2,10.99.0.3,10.99.0.4"
        self.assertEqual(below[4:], ["--rdma-ring", f"{everybody}:here=10.99.0.1,10.99.0.2:silence=60s", "--uplink", "udp:127.0.0.1:1/127.0.0.1:2"])
        self.assertEqual(above[4:], ["--rdma-ring", f"{everybody}:silence=60s"])
        for command, guests_there in ((below, crew[:2]), (above, crew[2:])):
            self.assertEqual(command[3].count("udp:"), 3)
            self.assertTrue(all(f"127.0.0.1:{guest.switch_port}/" in command[3] for guest in guests_there))

    def test_what_crosses_the_cable_is_told_by_kind(self) -> None:
        roce = bytearray(80)
        roce[12:14], roce[14], roce[23], roce[36:38] = b"\x08\x00", 0x45, 17, (4_791).to_bytes(2, "big")
        kinds = {}
        for opcode, length in ((0x07, 80), (0x0A, 74), (0x11, 62), (0x64, 80)):
            roce[42] = opcode
            kinds[opcode] = uplink.kind(bytes(roce[:length]))
        self.assertEqual(kinds, {0x07: "data", 0x0A: "questions", 0x11: "acknowledgements", 0x64: "others"})
        self.assertEqual(uplink.kind(bytes(12) + b"\x88\xb5" + bytes(46)), "switches")
        self.assertEqual(uplink.kind(bytes(12) + b"\x08\x06" + bytes(46)), "others")
        with uplink.Uplink() as cable:
            ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
            for end, name in zip(ends, (cable.below, cable.above), strict=True):
                own, other = (int(part.rsplit(":", 1)[1]) for part in name.split("/"))
                end.bind(("127.0.0.1", own))
                end.connect(("127.0.0.1", other))
                end.settimeout(10)
            ends[0].send(bytes(roce))
            self.assertEqual(ends[1].recv(100), bytes(roce))
            for end in ends:
                end.close()
        self.assertEqual((cable.up.frames, cable.up.bytes, cable.down.frames), ({"others": 1}, {"others": 80}, {}))

    def test_each_run_has_other_vectors_and_the_same_first_numbers_where_that_is_the_case(self) -> None:
        crew = rdma.plugged(rdma.CASES["numbers"], 2)
        first, second = (rdma.other_vectors(crew, run)[1].arguments for run in (0, 1))
        self.assertEqual(first[-6:], ["--retries", "7", "--psn", "0", "--first-operation", "0"])
        self.assertEqual(second[:-1], first[:-1])
        self.assertEqual(second[-1], "100")
        self.assertNotIn("--psn", rdma.plugged(rdma.CASES["clean"], 2)[0].arguments)

    def test_several_rings_share_the_cards_of_their_guests(self) -> None:
        case = rdma.CASES["rings"]
        crew = rdma.plugged(case, 3)
        self.assertEqual([len(guest.more) for guest in crew], [2, 2, 2])
        command = rdma.switch_command("fanin", case, crew)
        self.assertIn("8:i32:sum:10.99.0.1,10.99.0.2,10.99.0.3:silence=60s", command)
        self.assertIn("9:i32:sum:10.99.0.3,10.99.0.2,10.99.0.1:silence=60s", command)
        self.assertEqual(crew[0].more[1][:2], ["--rank", "2"])
        append = crew[0].command(Path("kernel"), Path("root"))[-1]
        self.assertEqual(append.count("+--rank:"), 2)
        found = rdma.outcome(CONSOLE + "done rank=0 wrong=1 unsummed=2\n", 2)
        self.assertEqual((found["wrong"], found["unsummed"]), (4, 3))
        with self.assertRaisesRegex(Failed, "has not ended well"):
            rdma.outcome(CONSOLE, 2)

    def test_only_where_a_worker_dies_it_is_found_out_soon(self) -> None:
        for name, case in rdma.CASES.items():
            command = " ".join(rdma.switch_command("fanin", case, rdma.plugged(case, 3)))
            self.assertEqual(":silence=" in command, case.summed and case.killed is None, name)
        self.assertEqual({case.retries for case in rdma.CASES.values()}, {7}, "no card gives up by itself")

    def test_what_a_switch_has_begun_anew_is_counted(self) -> None:
        text = "rank 2 comes for the first time when others were silent for more than a second: what they have sent counts later ring=7\n"
        self.assertEqual(rdma.begun_anew((rdma.ROOT / "crates/transparent/src/rdma/ring.rs").read_text()), 1)
        self.assertEqual(rdma.begun_anew(f"joins a\n{text}{text}"), 2)
        self.assertEqual(rdma.crossed([{"trunk_part_bytes": 5}, {"trunk_whole_bytes": 6}]), (5, 6))

    def test_the_numbers_of_a_switch_stand_in_its_last_line(self) -> None:
        text = "joins a\n INFO traced frames=9\n INFO \x1b[3mended\x1b[0m frames=12 rdma_summed=7 rdma_runs=1"
        self.assertEqual(rdma.switch_words(text), {"frames": 12, "rdma_summed": 7, "rdma_runs": 1})

    def test_modules_come_after_what_they_need(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = ["k/rdma_rxe.ko: k/ib_uverbs.ko k/ib_core.ko k/udp_tunnel.ko", "k/ib_uverbs.ko: k/ib_core.ko", "k/ib_core.ko:", "k/udp_tunnel.ko:"]
            (folder / "modules.dep").write_text("\n".join(lines) + "\n")
            names = [path.name for path in guests.module_files(folder)]
        self.assertEqual(names, ["ib_core.ko", "ib_uverbs.ko", "udp_tunnel.ko", "rdma_rxe.ko"])

    def test_what_is_wrong_with_a_trace_is_said(self) -> None:
        good = {"frames": 3, "icrc_wrong": 0, "checksum_wrong": 0, "backwards": 0, "per_second": 10**9}
        self.assertEqual(trace_tests.complaints("a", good), [])
        self.assertEqual(trace_tests.complaints("a", good | {"icrc_wrong": 2}), ["a: 2 frames with a wrong ICRC"])
        self.assertEqual(trace_tests.complaints("a", good | {"per_second": 10**6}), ["a: times are not in nanoseconds"])

    def test_unknown_cases_and_too_many_workers_are_refused(self) -> None:
        for arguments in (["fast"], ["--workers", "9"]):
            with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
                rdma.main(arguments)


if __name__ == "__main__":
    unittest.main()
