"""Tests of dist.py: which target is taken, what is static, what is in the file of checksums."""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import dist


class Dist(unittest.TestCase):
    def test_musl_is_taken_where_it_can_be_had_and_glibc_said_where_not(self):
        target, environment, words = dist.static_target("x86_64", True)
        self.assertEqual((target, environment, words), ("x86_64-unknown-linux-musl", {}, "musl"))
        target, environment, words = dist.static_target("aarch64", False)
        self.assertEqual((target, environment["RUSTFLAGS"]), ("aarch64-unknown-linux-gnu", "-C target-feature=+crt-static"))
        self.assertIn("musl is not to be had here", words)

    def test_a_program_with_a_loader_is_not_static(self):
        self.assertFalse(dist.is_static(Path(sys.executable).resolve()))

    def test_checksums_are_those_that_sha256sum_checks(self):
        with tempfile.TemporaryDirectory() as name:
            out = Path(name)
            (out / "b.whl").write_bytes(b"two")
            (out / "a.tar.gz").write_bytes(b"one")
            dist.write_checksums(out)
            dist.write_checksums(out)
            lines = (out / "SHA256SUMS").read_text().splitlines()
            self.assertEqual([line.split("  ")[1] for line in lines], ["a.tar.gz", "b.whl"])
            check = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=False)
            self.assertEqual(check.returncode, 0)

    def test_what_is_neither_wheel_nor_program_is_refused(self):
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            dist.main(["--out", name, "weel"])
        self.assertIn("'weel': expected wheel or program", said.getvalue())


if __name__ == "__main__":
    unittest.main()
