"""Tests of what is packaged: the unit for systemd is right and exposes little, and the image's program is not root."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "packaging" / "systemd" / "fanin-switch.service"
XDP = ROOT / "packaging" / "systemd" / "fanin-switch-xdp.conf"
#: What `systemd-analyze security` may say at most, in tenths.
EXPOSURE_MAX = 15


def settings(path: Path) -> list[tuple[str, str]]:
    """The settings of a unit, in order."""
    lines = [line for line in path.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


@unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
class Unit(unittest.TestCase):
    def analyzed(self, folder: str, *command: str) -> subprocess.CompletedProcess[str]:
        """What systemd says of the unit, where the program is one that this machine has."""
        unit = Path(folder, UNIT.name)
        unit.write_text(UNIT.read_text().replace("/usr/local/bin/fanin", shutil.which("true") or "/bin/true"))
        return subprocess.run(["systemd-analyze", *command, str(unit)], capture_output=True, text=True, check=False)

    def test_it_is_understood(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.analyzed(folder, "verify")
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_it_exposes_little(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.analyzed(folder, "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", "--no-pager")
            self.assertEqual(done.returncode, 0, done.stdout[-300:])


class Privileges(unittest.TestCase):
    def test_a_switch_has_no_capability_and_one_in_the_kernel_those_that_its_page_names(self):
        own = dict(settings(UNIT))
        self.assertEqual((own["CapabilityBoundingSet"], own["AmbientCapabilities"], own["NoNewPrivileges"]), ("", "", "yes"))
        named = set(re.findall(r"`(CAP_\w+)`", (ROOT / "docs" / "xdp.md").read_text()))
        for key, value in settings(XDP):
            if key.endswith(("BoundingSet", "Capabilities")):
                self.assertEqual(set(value.split()), named, key)

    def test_the_image_runs_as_nobody(self):
        lines = (ROOT / "Dockerfile").read_text().splitlines()
        last = lines.index("FROM scratch")
        [user] = [line.split()[1] for line in lines[last:] if line.startswith("USER ")]
        self.assertRegex(user, r"^[1-9]\d*:[1-9]\d*$", "an empty image has no names of users")


if __name__ == "__main__":
    unittest.main()
