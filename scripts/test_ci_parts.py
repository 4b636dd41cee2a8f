"""Tests of what CI runs for a change."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import unittest
from pathlib import Path

import ci_parts
import test_all

ROOT = Path(__file__).resolve().parent.parent


def tracked() -> list[str]:
    """The files of the repository."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.split("\0") if name]


class Parts(unittest.TestCase):
    """Which parts run."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folders = ci_parts.folders_of_crates()

    def names(self, *files: str) -> list[str]:
        """The parts that run when `files` have changed."""
        return [part.name for part in ci_parts.chosen(files, self.folders)]

    def test_a_page_runs_no_pytorch(self) -> None:
        self.assertEqual(self.names("docs/concepts.md"), ["lint", "rust", "python", "own-crates", "docs"])
        self.assertEqual(self.names("CHANGELOG.md"), ["lint", "docs"])

    def test_python_runs_no_crates_tests(self) -> None:
        self.assertEqual(self.names("python/fanin/torch/backend.py"), ["lint", "python", "pytorch", "pytorch-oldest", "docs", "clean-install"])

    def test_the_kernels_program_runs_its_own_part(self) -> None:
        self.assertEqual(self.names("dataplanes/xdp/switch.bpf.c"), ["lint", "rust", "xdp"])

    def test_a_crate_runs_what_is_built_from_it(self) -> None:
        everything = [part.name for part in ci_parts.PARTS]
        self.assertEqual(self.names("crates/core/src/lib.rs"), everything)
        self.assertEqual(self.names("crates/lint/src/main.rs"), ["lint", "rust", "privileged"])
        self.assertIn("hops", self.names("crates/protocols/src/canary/worker.rs"))

    def test_what_all_are_built_by_runs_all(self) -> None:
        everything = [part.name for part in ci_parts.PARTS]
        for file in ("Cargo.lock", "rust-toolchain.toml", ".github/workflows/ci.yml", "scripts/ci_parts.py"):
            self.assertEqual(self.names(file), everything, file)
        self.assertEqual([part.name for part in ci_parts.chosen(None, self.folders)], everything)
        self.assertEqual(self.names(), [])

    def test_every_pattern_names_files_and_every_crate_exists(self) -> None:
        files = tracked()
        for part in ci_parts.PARTS:
            for crate in part.crates:
                self.assertIn(crate, ["*", *self.folders], part.name)
            for pattern in (*part.files, *ci_parts.EVERYTHING):
                self.assertTrue(any(ci_parts.fnmatchcase(file, pattern) for file in files), f"{part.name}: {pattern}")

    def test_what_the_crates_tests_read_is_theirs(self) -> None:
        rust = next(part for part in ci_parts.PARTS if part.name == "rust")
        read = re.compile(r'"(?:\.\./)+((?:docs|examples|experiments|python|scripts|dataplanes)(?:/[\w.-]+)+)"')
        found = set()
        for file in tracked():
            if file.startswith("crates/") and file.endswith(".rs"):
                found.update(read.findall((ROOT / file).read_text()))
        self.assertIn("docs/workloads.md", found)
        for file in found:
            name = f"{file}/one" if (ROOT / file).is_dir() else file
            self.assertTrue(ci_parts.depends(rust, name, self.folders), file)

    def test_the_checks_of_the_commands_exist(self) -> None:
        known = {check.name for check in test_all.CHECKS}
        for part in ci_parts.PARTS:
            for checks in re.findall(r'CHECKS=(?:"([^"]+)"|(\S+))', part.command):
                self.assertLessEqual(set("".join(checks).split()), known, part.name)
        self.assertIn("scripts/ci_parts.py", (ROOT / ".github/workflows/ci.yml").read_text())

    def test_an_unknown_base_runs_all(self) -> None:
        self.assertIsNone(ci_parts.changed_since("0" * 40))
        printed, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            self.assertEqual(ci_parts.main(["--base", "0" * 40]), 0)
        self.assertEqual([one["part"] for one in json.loads(printed.getvalue())["include"]], [part.name for part in ci_parts.PARTS])
        self.assertEqual(said.getvalue(), "")

    def test_nothing_changed_runs_nothing(self) -> None:
        printed, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            self.assertEqual(ci_parts.main(["--base", "HEAD"]), 0)
        self.assertEqual(json.loads(printed.getvalue()), {"include": []})
        self.assertIn("lint", said.getvalue())


class Nightly(unittest.TestCase):
    """What runs at night."""

    def test_each_system_has_a_campaign(self) -> None:
        matrix = re.search(r"^ +system: \[(.*)\]$", (ROOT / ".github/workflows/nightly.yml").read_text(), re.MULTILINE)
        systems = re.search(r"^System: TypeAlias = Literal\[\n(.*?)^\]", (ROOT / "python/fanin/_systems.py").read_text(), re.MULTILINE | re.DOTALL)
        assert matrix is not None and systems is not None
        known = re.findall(r'"([a-z0-9-]+)"', systems[1])
        self.assertGreater(len(known), 10)
        self.assertEqual(sorted(matrix[1].split(", ")), sorted([*known, "all", "pods"]))


if __name__ == "__main__":
    unittest.main()
