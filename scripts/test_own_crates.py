"""Tests of own_crates.py: every crate outside of the workspace is run, and none that is not there."""

import subprocess
import tomllib
import unittest

import own_crates


class Tests(unittest.TestCase):
    def test_each_crate_has_runs_a_lock_file_and_a_workspace_of_its_own(self):
        found = own_crates.crates()
        self.assertEqual([crate.name for crate in found], sorted(own_crates.RUNS))
        for crate in found:
            manifest = tomllib.loads((crate / "Cargo.toml").read_text())
            self.assertEqual((manifest["package"]["name"], manifest["workspace"]), (crate.name, {}))
            self.assertTrue((crate / "Cargo.lock").exists())
            self.assertTrue((crate / "plan.toml").exists())

    def test_lock_files_are_of_what_the_crates_import_now(self):
        for crate in own_crates.crates():
            metadata = ["cargo", "metadata", "--locked", "--format-version", "1"]
            done = subprocess.run(metadata, cwd=crate, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{crate.name}: {done.stderr} (`cargo metadata` without --locked writes it)")


if __name__ == "__main__":
    unittest.main()
