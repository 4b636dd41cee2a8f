#!/usr/bin/env python3
"""Golden packets of the protocols' state machines through the same switches on DPDK's software pipeline (dataplanes/dpdk), pcap to pcap.

Needs neither huge pages nor a network card nor root; Debian's libdpdk-dev is installed where that can be.

Usage: dpdk.py [--seed N] [--packets N] [--cases N] [FOLDER ...]

Plays the cases in the folders, or those that are kept in dataplanes/p4/golden and fresh ones. Then each program is played with a mistake in it, which
some case must show. Exits with 1 if a packet that came
out is another one than the state machine's, or a mistake was not seen. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import packages

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "dataplanes" / "dpdk"
KEPT = ROOT / "dataplanes" / "p4" / "golden"
BUILT = ROOT / "target" / "dpdk"

#: A mistake in each program: the only place where a line stands, and what stands there instead. Cases must tell the difference.
MISTAKES = {
    "canary": [
        # The broadcast does not find back to a straggler.
        ("\tSTRAGGLER : or m.children m.bit", "\tSTRAGGLER : mov m.word 0"),
        # The leader is waited for.
        ("\tjmplt DROP m.word m.hosts", "\tjmplt DROP m.counter m.hosts"),
        # The broadcast goes back to where it came from.
        ("\tand m.copies m.bit", "\tand m.copies 0xffffffffffffffff"),
        # A descriptor that was sent on is given up as early as one is sent on.
        ("\tOLD : regrd m.own OWN 5", "\tOLD : regrd m.own OWN 4"),
        # The leader is not told of which port there was a collision.
        ("\tmov h.canary.children m.port", "\tmov h.canary.children 0"),
    ],
    "switchml": [
        # A contribution that was counted before is added again.
        ("\tjmpneq SEEN m.word 0", "\tjmpneq SEEN m.word 0xffffffff"),
        # A round may be any number ahead; then a late packet is a new one.
        ("\tjmpgt DROP m.word m.ahead", "\tjmpgt DROP m.word 0xffffffff"),
        # The first exponent stays.
        ("\tLARGER : regwr EXPONENTS m.cell m.exponent", "\tLARGER : mov m.word 0"),
        # Pools of jobs overlap.
        ("\tadd m.cell m.first", "\tadd m.cell 0"),
        # What is asked for again goes to all.
        ("\tSEEN : jmpneq DROP m.arrived m.all", "\tSEEN : jmpeq COMPLETE m.arrived m.all"),
    ],
}


class Failed(Exception):
    """What came out is wrong, or nothing did."""


def present() -> bool:
    """Whether programs for DPDK can be built here."""
    if any(shutil.which(name) is None for name in ("cc", "pkg-config")):
        return False
    return subprocess.run(["pkg-config", "--exists", "libdpdk"], capture_output=True, check=False).returncode == 0


def obstacle() -> str | None:
    """Why this cannot be run here, or None if it can."""
    return packages.missing(["gcc", "libc6-dev", "libdpdk-dev", "pkg-config"], present)


def words(command: Sequence[str]) -> list[str]:
    """What a command prints, word by word."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def build() -> Path:
    """The driver."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / "play"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-DALLOW_EXPERIMENTAL_API", *words(["pkg-config", "--cflags", "libdpdk"])]
    subprocess.run(["cc", *flags, "-o", str(program), *sources, *words(["pkg-config", "--libs", "libdpdk"])], check=True)
    return program


def frames(path: Path) -> list[bytes]:
    """The packets of a file of the classic format, whatever their times."""
    content = path.read_bytes()
    if len(content) < 24 or struct.unpack_from("<I", content)[0] not in (0xA1B2C3D4, 0xA1B23C4D):
        raise Failed(f"{path} is no pcap file of this machine's byte order")
    found, at = [], 24
    while at < len(content):
        length = struct.unpack_from("<I", content, at + 8)[0]
        found.append(content[at + 16 : at + 16 + length])
        at += 16 + length
    return found


def difference(port: int, expected: Sequence[bytes], got: Sequence[bytes]) -> str | None:
    """Where two ports' packets differ first, or None."""
    for number, (one, other) in enumerate(zip(expected, got)):
        if one != other:
            at = next((at for at, (left, right) in enumerate(zip(one, other)) if left != right), min(len(one), len(other)))
            return f"port {port}, packet {number}: differs from byte {at} on: {other[at : at + 8].hex(' ')}, expected {one[at : at + 8].hex(' ')}"
    if len(expected) != len(got):
        return f"port {port}: {len(got)} packets, expected {len(expected)}"
    return None


class Player:
    """Plays cases through programs."""

    def __init__(self, play: Path, fanin_p4: Path) -> None:
        self.play, self.fanin_p4 = play, fanin_p4

    def out(self, case: Path, spec: Path, folder: Path) -> str:
        """Plays a case; its packets come to lie in the folder. Gives what the driver prints."""
        about = json.loads((case / "case.json").read_text())
        configuration = folder / "configuration.txt"
        command = [str(self.fanin_p4), "dpdk", about["program"], str(case / "switch.json")]
        configuration.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        command = [str(self.play), "--config", str(configuration), "--out", str(folder), str(spec), str(about["ports"]), str(case)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise Failed(f"{case.name}: {done.stderr.strip()}")
        return done.stdout.strip()

    def compare(self, case: Path, spec: Path) -> tuple[str, list[str]]:
        """Plays a case; gives what the driver prints, and the differences."""
        ports = json.loads((case / "case.json").read_text())["ports"]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            said = self.out(case, spec, folder)
            pairs = [(port, frames(case / f"p{port}_out.pcap"), frames(folder / f"p{port}_out.pcap")) for port in range(ports)]
        return said, [text for text in (difference(*pair) for pair in pairs) if text is not None]

    def sees(self, program: str, mistake: tuple[str, str], cases: Sequence[Path]) -> bool:
        """Whether some case shows a mistake in a program."""
        line, instead = mistake
        text = (SOURCES / f"{program}.spec").read_text()
        if text.count(line + "\n") != 1:
            raise Failed(f"{program}.spec: `{line.strip()}` stands there {text.count(line)} times: the mistakes in scripts/dpdk.py need another line")
        with tempfile.NamedTemporaryFile("w", suffix=".spec") as file:
            file.write(text.replace(line + "\n", instead + "\n"))
            file.flush()
            return any(self.compare(case, Path(file.name))[1] for case in cases)


def check(player: Player, cases: Sequence[Path]) -> bool:
    """Plays all cases that there is a program for; says what came out. Whether all of it is right."""
    right, played = True, {}
    for case in cases:
        program = json.loads((case / "case.json").read_text())["program"]
        spec = SOURCES / f"{program}.spec"
        if not spec.exists():
            print(f"skipped: {case.name}: {program} has no program for DPDK's pipeline")
            continue
        said, differences = player.compare(case, spec)
        packets_out = sum(len(frames(path)) for path in case.glob("p*_out.pcap"))
        print(f"{'failed' if differences else 'passed'}: {case.name}: {said}; {packets_out} packets out")
        for text in differences:
            print(f"  {text}")
        right = right and not differences
        played.setdefault(program, []).append(case)
    for program, mistakes in MISTAKES.items():
        # A program that is wrong by itself would show anything.
        for mistake in mistakes if right and program in played else []:
            seen = player.sees(program, mistake, played[program])
            print(f"{'passed' if seen else 'failed'}: {program} with a mistake, `{mistake[1].strip()}`: {'seen' if seen else 'not seen'}")
            right = right and seen
    return right


def fresh(fanin_p4: Path, options: argparse.Namespace) -> list[Path]:
    """Cases made now."""
    folder = BUILT / "golden"
    shutil.rmtree(folder, ignore_errors=True)
    numbers = ["--seed", str(options.seed), "--packets", str(options.packets), "--cases", str(options.cases)]
    subprocess.run([str(fanin_p4), "golden", str(folder), *numbers], check=True)
    return sorted(folder.iterdir()) if folder.exists() else []


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1_000, help="of the fresh cases; 1000 if it is not given")
    parser.add_argument("--packets", type=int, default=2_000, help="packets of each; 2000 if it is not given")
    parser.add_argument("--cases", type=int, default=3, help="fresh cases of each shape; 3 if it is not given")
    parser.add_argument("--fanin-p4", type=Path, default=ROOT / "target" / "debug" / "fanin-p4", help="the program that makes cases")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="cases to play")
    options = parser.parse_args(arguments)
    reason = obstacle()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    try:
        player = Player(build(), options.fanin_p4)
        cases = options.folders or [*sorted(KEPT.iterdir()), *fresh(options.fanin_p4, options)]
        return 0 if check(player, cases) else 1
    except Failed as error:
        print(f"failed: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
