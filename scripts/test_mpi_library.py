"""The library for MPI programs says the same as its documentation, without a compiler or an MPI."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mpi_library
import mpi_tests

SOURCES = {path.name: path.read_text() for path in sorted((mpi_library.FOLDER / "src").iterdir())}
PAGE = (mpi_library.ROOT / "docs" / "mpi.md").read_text()
STARTUP = SOURCES["startup.c"]


class Words(unittest.TestCase):
    """Names and numbers."""

    def test_its_variables_are_known_to_the_communicator_and_documented(self) -> None:
        read = set(re.findall(r'"(FANIN_MPI_\w+)"', STARTUP))
        self.assertEqual(read, {"FANIN_MPI_SERVE", "FANIN_MPI_VERBOSE"})
        known = (mpi_library.ROOT / "crates" / "comm" / "src" / "variables.rs").read_text()
        for name in read:
            self.assertIn(f'"{name}"', known)
            self.assertIn(f"| `{name}` |", PAGE)

    def test_the_collectives_have_the_same_names(self) -> None:
        names = re.findall(r'"(\w+)"', re.search(r"kind_names\[FM_KINDS\] = \{(.*?)\}", STARTUP, re.DOTALL)[1])
        line = next(line for line in PAGE.splitlines() if line.startswith("| `FANIN_MPI_SERVE` |"))
        self.assertEqual([name for name in re.findall(r"`(\w+)`", line) if name in names], names)
        self.assertEqual(len(names), 6)

    def test_what_is_served_by_default_is_documented(self) -> None:
        block = re.search(r"defaults\[2\]\[FM_KINDS\] = \{(.*?)\n\};", STARTUP, re.DOTALL)
        assert block is not None
        unit = {"10": "KiB", "20": "MiB"}
        found: dict[str, list[str]] = {}
        for kind, number, shift in re.findall(r"\[FM_(\w+)\] = (\w+)(?: << (\d+))?", block[1]):
            found.setdefault(kind.lower(), []).append("never" if number == "SIZE_MAX" else f"{number} {unit[shift]}")
        rows = re.findall(r"^\| `(\w+)` \| (never|\d+ \w+) \| (never|\d+ \w+) \|$", PAGE, re.MULTILINE)
        self.assertEqual({kind: [network, memory] for kind, network, memory in rows}, found)
        self.assertEqual(len(rows), 6)

    def test_every_function_goes_by_both_names_and_calls_the_mpis_own(self) -> None:
        names = [
            name for text in SOURCES.values() for name in re.findall(r"^(?:BOTH|BOTH_INIT|OF_REQUESTS)\((\w+), \(", text, re.MULTILINE)
        ]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            own = f"fm_real.{name}"
            self.assertTrue(any(re.search(rf"{re.escape(own)}\b", text) for text in SOURCES.values()), name)
        # Nothing but what a library has is called by its public name, which would come back here.
        for name, text in SOURCES.items():
            calls = set(re.findall(r"(?<!int )\b(P?MPIX?_[A-Z][a-z]\w*)\(", re.sub(r"/\*.*?\*/|\".*?\"", "", text, flags=re.DOTALL)))
            self.assertLessEqual(calls, {"PMPIX_Grequest_start"}, name)

    def test_what_the_library_says_is_read(self) -> None:
        words = "x\nfanin-mpi: rank 0: served and left: allreduce 12 (48 bytes) and 3; barrier 0 (0 bytes) and 7\ny"
        self.assertEqual(mpi_tests.served(words), {"allreduce": (12, 3), "barrier": (0, 7)})
        self.assertEqual(mpi_tests.served("nothing"), {})


if __name__ == "__main__":
    unittest.main()
