"""The page of promises names tests that exist."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: A test's name with the file that has it.
NAMED = re.compile(r"\[`([a-z0-9_]+)`\]\(\.\./([^)#]+\.rs)\)")


class Promises(unittest.TestCase):
    """`docs/promises.md`."""

    def test_every_test_that_is_named_exists(self) -> None:
        named = NAMED.findall((ROOT / "docs/promises.md").read_text())
        self.assertGreater(len(named), 15)
        for name, file in named:
            with self.subTest(name=name):
                self.assertRegex((ROOT / file).read_text(), rf"\bfn {name}\(")


if __name__ == "__main__":
    unittest.main()
