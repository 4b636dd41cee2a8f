"""Tests of clean_install.py: what is installed for PyTorch's example, and what happens where there is no room for it."""

import contextlib
import io
import shutil
import unittest
from unittest import mock

import clean_install
import torch_tests

Usage = type(shutil.disk_usage("/"))


class Torch(unittest.TestCase):
    def test_the_example_has_the_versions_that_are_tested(self):
        wanted = clean_install.needed(torch_tests.REQUIREMENTS.read_text())
        self.assertEqual([line.split("==")[0] for line in wanted], sorted(clean_install.NEEDED))

    def test_other_lines_are_left_out(self):
        self.assertEqual(clean_install.needed("# torch==1\nmypy==2.4.1\ntorch==2.15.0\ntorchvision==3\n"), ["torch==2.15.0"])

    def test_nothing_is_installed_where_there_is_no_room(self):
        said = io.StringIO()
        with mock.patch("shutil.disk_usage", lambda _: Usage(100 << 30, 95 << 30, 5 << 30)), contextlib.redirect_stderr(said):
            self.assertEqual(clean_install.main(["--torch", "no.whl"]), 1)
        self.assertEqual(said.getvalue(), "error: PyTorch needs 12 GiB of disk, and 5 GiB are free\n")


if __name__ == "__main__":
    unittest.main()
