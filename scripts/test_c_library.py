"""Header, Fortran module and list of symbols of libfanin say the same, without a compiler."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import c_library
import c_tests

HEADER = c_library.HEADER.read_text()
MODULE = c_library.HEADER.with_name("fanin.f90").read_text()
#: For C alone: callbacks, and what is a constant in Fortran.
C_ALONE = {"fanin_settings_notices", "fanin_version"}


class Interfaces(unittest.TestCase):
    """What `fanin.h` declares is what the library exports and what the module binds."""

    def test_every_function_of_the_header_is_exported_and_no_other(self) -> None:
        declared = set(re.findall(r"^\S[^#\n]*?\b(fanin_\w+)\(", HEADER, re.MULTILINE))
        self.assertEqual(declared, set(c_library.listed()))
        self.assertGreater(len(declared), 25)

    def test_fortran_binds_every_function_by_its_name_with_as_many_arguments(self) -> None:
        bound = {}
        for name, arguments, other in re.findall(r"(?:function|subroutine) (fanin_\w+)\(([^)]*)\) bind\(c(?:, name=\"(\w+)\")?\)", MODULE):
            bound[other or name] = len([argument for argument in arguments.split(",") if argument.strip()])
        self.assertEqual(set(bound) | C_ALONE, set(c_library.listed()))
        for name, count in bound.items():
            arguments = re.search(rf"\b{name}\(([^)]*)\);", HEADER, re.DOTALL)
            assert arguments is not None
            self.assertEqual(count, 0 if arguments[1] == "void" else arguments[1].count(",") + 1, name)

    def test_numbers_are_the_same(self) -> None:
        numbers = {name.lower(): int(value) for name, value in re.findall(r"#define (FANIN_\w+) (\d+)", HEADER)}
        module = {name: int(value) for name, value in re.findall(r"(fanin_\w+) = (\d+)", MODULE)}
        self.assertEqual(numbers, module)
        self.assertEqual(len(numbers), 9 + 9 + 10)

    def test_the_page_shows_a_program(self) -> None:
        self.assertIn("fanin_allreduce(comm", c_tests.on_the_page())

    def test_lines_of_fortran_are_short_enough(self) -> None:
        example = (c_library.ROOT / "examples" / "c" / "sum.f90").read_text()
        self.assertLessEqual(max(map(len, (MODULE + example).splitlines())), 132)


if __name__ == "__main__":
    unittest.main()
