"""Tests of rust_tests.py: what it finds in cargo's messages, in which order it runs what it found, and what it says."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rust_tests


def message(name, kind, package, *, test=True, executable="/target/deps/x"):
    return json.dumps(
        {
            "reason": "compiler-artifact",
            "package_id": package,
            "manifest_path": "/src/crates/comm/Cargo.toml",
            "target": {"name": name, "kind": [kind]},
            "profile": {"test": test},
            "executable": executable,
        }
    )


def program(name, script, folder="/"):
    return rust_tests.Program(name, ("sh", "-c", script), Path(folder))


class Tests(unittest.TestCase):
    def test_programs_are_those_that_cargo_would_run(self):
        lines = [
            message("fallback", "test", "path+file:///src/crates/comm#fanin-comm@0.2.0"),
            message("fanin_comm", "lib", "path+file:///src/crates/comm#fanin-comm@0.2.0"),
            message("fanin_comm", "lib", "path+file:///src/crates/comm#fanin-comm@0.2.0", test=False),
            message("fanin_comm", "lib", "path+file:///src/crates/comm#fanin-comm@0.2.0", executable=None),
            message("fanin_core", "lib", "path+file:///src/crates/comm#0.2.0"),
            '{"reason": "build-finished", "success": true}',
            "not JSON",
        ]
        found = rust_tests.programs("\n".join(lines))
        self.assertEqual([one.name for one in found], ["fanin-comm fallback", "fanin-comm unit", "fanin-comm unit"])
        self.assertEqual(found[0].folder, Path("/src/crates/comm"))

    def test_the_longest_come_first_and_unknown_ones_before_them(self):
        names = ["a", "b", "fanin-check all", "fanin verdicts", "c"]
        ordered = rust_tests.longest_first([program(name, "") for name in names], {"a": 1.0, "b": 9.0})
        self.assertEqual([one.name for one in ordered], ["fanin verdicts", "fanin-check all", "c", "b", "a"])

    def test_what_fails_is_shown_and_counts(self):
        good = program("good", "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'; pwd", "/tmp")
        bad = program("bad", "echo the reason; echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured'; exit 101")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            outcomes = rust_tests.run_all([good, bad], [], 2)
        self.assertEqual((outcomes["good"].code, outcomes["good"].counts), (0, (3, 0, 1)))
        self.assertEqual((outcomes["bad"].code, outcomes["bad"].counts), (101, (1, 2, 0)))
        self.assertTrue(outcomes["good"].output.endswith("/tmp\n"))
        self.assertIn("the reason", said.getvalue())
        self.assertNotIn("test result: ok", said.getvalue())

    def test_it_fails_where_a_program_does_and_keeps_what_each_took(self):
        known = [program("good", "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'"), program("bad", "exit 3")]
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(rust_tests, "RECORD", Path(folder) / "record.json"):
            with mock.patch.object(rust_tests, "build", return_value=known), contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(rust_tests.main([]), 1)
                self.assertEqual(rust_tests.main(["good"]), 0)
            self.assertEqual(sorted(json.loads(rust_tests.RECORD.read_text())), ["bad", "good"])
        self.assertIn("failed: bad", said.getvalue())

    def test_words_that_name_nothing_are_refused(self):
        with mock.patch.object(rust_tests, "build", return_value=[program("good", "")]), contextlib.redirect_stderr(io.StringIO()) as said:
            for arguments in (["nothing"], ["--jobs", "0"]):
                with self.assertRaises(SystemExit):
                    rust_tests.main(arguments)
        self.assertIn("no test program has nothing in its name; there are good", said.getvalue())
        self.assertIn("--jobs: 0: expected 1 or more", said.getvalue())


if __name__ == "__main__":
    unittest.main()
