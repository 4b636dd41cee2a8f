"""Tests of reproducible.py: two archives are equal, or it is said where they differ."""

import tempfile
import unittest
from pathlib import Path

import dist
import reproducible


class Difference(unittest.TestCase):
    def archives(self, folder: str, one: bytes, other: bytes, seconds: tuple[int, int] = (1_600_000_000, 1_600_000_000)) -> tuple[Path, Path]:
        """Two archives with a program each."""
        made = []
        for name, content, at in (("one", one, seconds[0]), ("other", other, seconds[1])):
            program = Path(folder, name)
            program.write_bytes(content)
            made.append(Path(folder, f"{name}.tar.gz"))
            dist.pack(made[-1], [(program, "fanin/fanin")], at)
        return made[0], made[1]

    def test_equal_ones_do_not_differ(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(reproducible.difference(*self.archives(folder, b"same", b"same")))

    def test_the_first_byte_that_differs_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            found = reproducible.difference(*self.archives(folder, b"abcd", b"abXd"))
            self.assertEqual(found, "fanin/fanin (4 and 4 bytes) differs from byte 2 on")
            found = reproducible.difference(*self.archives(folder, b"abcd", b"ab"))
            self.assertEqual(found, "fanin/fanin (4 and 2 bytes) differs from byte 2 on")

    def test_what_is_said_of_files_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            found = reproducible.difference(*self.archives(folder, b"same", b"same", (1_600_000_000, 1_600_000_001)))
            self.assertEqual(found, "the files in them are equal: dates, owners or modes differ")


if __name__ == "__main__":
    unittest.main()
