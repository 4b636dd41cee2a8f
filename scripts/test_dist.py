"""Tests of dist.py: which target is taken, what is static, what is in the file of checksums."""

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
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

    def test_an_archive_says_nothing_of_who_has_packed_it_and_when(self):
        with tempfile.TemporaryDirectory() as name:
            digests = set()
            for folder, date in (("one", 1_000_000_000), ("two", 1_700_000_000)):
                place = Path(name, folder)
                place.mkdir()
                program = place / "fanin"
                program.write_bytes(b"program")
                program.chmod(0o775 if folder == "one" else 0o700)
                os.utime(program, (date, date))
                dist.pack(place / "fanin.tar.gz", [(program, "fanin-1/fanin")], 1_600_000_000)
                digests.add((place / "fanin.tar.gz").read_bytes())
            self.assertEqual(len(digests), 1)
            with tarfile.open(place / "fanin.tar.gz") as archive:
                [entry] = archive.getmembers()
                self.assertEqual((entry.name, entry.mode, entry.mtime, entry.uid), ("fanin-1/fanin", 0o755, 1_600_000_000, 0))

    def test_no_path_of_the_machine_gets_into_a_program(self):
        with tempfile.TemporaryDirectory() as name:
            built = {}
            for folder in ("a", "another"):
                source = Path(name, folder, "main.rs")
                source.parent.mkdir()
                source.write_text('fn main() { println!("{}", file!()); panic!("where") }')
                flags = dist.without_paths(source.parent)["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
                subprocess.run(["rustc", "-C", "strip=symbols", *flags, "-o", source.parent / "main", source], cwd=dist.ROOT, check=True)
                built[folder] = (source.parent / "main").read_bytes()
            self.assertEqual(built["a"], built["another"])
            self.assertNotIn(name.encode(), built["a"])
            self.assertIn(b"/fanin/main.rs", built["a"])

    def test_what_is_packed_is_dated_by_who_builds_it(self):
        with unittest.mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "1600000000"}):
            self.assertEqual(dist.epoch(), 1_600_000_000)
        with unittest.mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "yesterday"}), self.assertRaises(SystemExit) as stopped:
            dist.epoch()
        self.assertEqual(stopped.exception.code, "dist: SOURCE_DATE_EPOCH = 'yesterday': expected seconds since 1970")

    def test_what_is_neither_wheel_nor_program_is_refused(self):
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            dist.main(["--out", name, "weel"])
        self.assertIn("'weel': expected wheel or program", said.getvalue())


if __name__ == "__main__":
    unittest.main()
