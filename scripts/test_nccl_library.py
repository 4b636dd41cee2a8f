"""libnccl-net-fanin.so's sources, scripts and page say the same, without a compiler."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "crates" / "nccl" / "tests"))

import interface
import nccl_library

ROOT = nccl_library.ROOT
TABLES = (ROOT / "crates" / "nccl" / "src" / "tables.rs").read_text()
PAGE = (ROOT / "docs" / "nccl.md").read_text()


class Plugin(unittest.TestCase):
    """The library's names and numbers."""

    def test_the_tables_are_those_that_are_tested(self) -> None:
        self.assertEqual(sorted(re.findall(r"pub static (\w+):", TABLES)), nccl_library.listed())
        self.assertEqual(nccl_library.VERSIONS, interface.VERSIONS)

    def test_the_page_says_what_is_tested(self) -> None:
        self.assertIn(f"versions {interface.VERSIONS[0]} to {interface.VERSIONS[-1]}", PAGE)
        self.assertIn(f"up to {interface.REQUESTS_MAX} at once", PAGE)
        self.assertIn(nccl_library.NAME, PAGE)
        for name, _ in interface.TYPES[:10]:
            self.assertIn(name, PAGE)

    def test_properties_grow_from_version_to_version(self) -> None:
        sizes = [interface.ctypes.sizeof(interface.properties(version)) for version in interface.VERSIONS]
        # As NCCL 2.30's own headers have them.
        self.assertEqual(sizes, [64, 104, 104, 112, 128])


if __name__ == "__main__":
    unittest.main()
