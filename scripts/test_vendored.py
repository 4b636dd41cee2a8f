"""Tests of what the repository has from elsewhere for its pages."""

import shutil
import tempfile
import unittest
from pathlib import Path

import vendored


class Vendored(unittest.TestCase):
    def test_files_are_those_of_the_list(self):
        self.assertEqual(vendored.wrong(), [])

    def test_what_differs_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            assets = Path(folder) / "assets"
            shutil.copytree(vendored.ASSETS, assets)
            (assets / "uplot" / "uPlot.min.css").write_text("changed")
            (assets / "uplot" / "LICENSE").unlink()
            wrong = vendored.wrong(assets)
        self.assertEqual(wrong, ["uPlot.min.css: its digest is not that of uplot 1.6.32", "LICENSE: it is missing"])


if __name__ == "__main__":
    unittest.main()
