"""Tests of toolchain.sh with a rustup that only pretends."""

import os
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "toolchain.sh"

#: Knows the toolchains in $INSTALLED (NAME=VERSION, ...), and writes down what it is asked to install.
RUSTUP = """#!/usr/bin/env bash
case "$1 $2" in
    "toolchain list") for entry in $INSTALLED; do echo "${entry%=*}"; done ;;
    "toolchain install") echo "install $3" >>"$LOG" ;;
    run*)
        for entry in $INSTALLED; do
            if [[ "${entry%=*}" == "$2" ]]; then echo "rustc ${entry#*=} (0 1970-01-01)"; exit 0; fi
        done
        exit 1 ;;
esac
"""


class Toolchain(unittest.TestCase):
    def choose(self, pinned, installed):
        """What the script prints, and what was installed."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "scripts").mkdir()
            script = root / "scripts" / SCRIPT.name
            script.write_text(SCRIPT.read_text())
            (root / "rust-toolchain.toml").write_text(f'[toolchain]\nchannel = "{pinned}"\n')
            rustup = root / "bin" / "rustup"
            rustup.parent.mkdir()
            rustup.write_text(RUSTUP)
            rustup.chmod(rustup.stat().st_mode | stat.S_IXUSR)
            log = root / "log"
            environment = os.environ | {"PATH": f"{rustup.parent}:{os.environ['PATH']}", "INSTALLED": installed, "LOG": str(log)}
            done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, check=True)
            return done.stdout.strip(), log.read_text().strip() if log.exists() else ""

    def test_the_pinned_toolchain_is_used_where_it_is_installed(self):
        self.assertEqual(self.choose("1.95.0", "stable=1.96.0 1.95.0=1.95.0"), ("1.95.0", ""))

    def test_the_same_version_under_another_name_will_do(self):
        self.assertEqual(self.choose("1.95.0", "nightly=1.98.0 stable=1.95.0"), ("stable", ""))

    def test_another_version_will_not_do_and_the_pinned_one_is_installed(self):
        self.assertEqual(self.choose("1.95.0", "stable=1.95.1"), ("1.95.0", "install 1.95.0"))


if __name__ == "__main__":
    unittest.main()
