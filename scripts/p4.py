#!/usr/bin/env python3
"""Plays golden packets through the P4 programs in bmv2, and compares what comes out with what the state machines say.

    check [--seed N] [--packets N] [--cases N]    the committed cases, and fresh ones of that seed and length
    run FOLDER...                                 these cases
    mutants [PROGRAM...]                          programs with a mistake each (mutants.json): golden packets must find it
    tna [--write]                                 compiles the programs in TNA for Tofino: what they take must be as in tna/resources.json

A case is a folder: packets in and out of each port (`p0_in.pcap`, `p0_out.pcap`), `commands.txt` for the control plane, `case.json` about
the program. `fanin-p4 golden` writes them. A difference names the packet and its fields, and the packet in that made it; the case is then
cut down to the packets that still show a difference, which are kept under out/p4.

Needs p4c (with its bmv2 backend), simple_switch and simple_switch_CLI: docs/p4.md says how to build them. Python's standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import p4_tna
import p4_tofino

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "dataplanes" / "p4"
OUT = ROOT / "out" / "p4"
COMPILERS = ("p4c-bm2-ss", "p4c")
#: The switch listens for the control plane after so long, at most.
START_S = 10.0
#: A packet has left after so long, at most.
LATE_S = 2.0
#: After the last packet, for packets that should not come.
GRACE_S = 0.3
#: Runs of a case that shows a difference, at most, to make it smaller.
SHRINKS = 40


#: The port that packets that come by again go to, as in the programs.
AGAIN_PORT = 510


#: Headers of packets that are not a case's usual ones, by Ethernet's type: clock packets.
OTHERS: dict[bytes, Sequence[str]] = {b"\x88\xb6": ("ethernet", "clock")}
#: Headers of a file of packets, and of each packet in it.
PCAP_BYTES, RECORD_BYTES = 24, 16


class Failed(Exception):
    """A tool failed."""


class Ended(Failed):
    """bmv2 ended while a case was played, as it does where a register is read beyond its end."""


def obstacle() -> str | None:
    """Why the programs cannot be run here."""
    if not any(shutil.which(name) for name in COMPILERS):
        return f"none of {', '.join(COMPILERS)} is on PATH: docs/p4.md says how to build it"
    missing = [name for name in ("simple_switch", "simple_switch_CLI") if shutil.which(name) is None]
    return f"{' and '.join(missing)} is not on PATH: docs/p4.md says how to build it" if missing else None


@dataclass(frozen=True)
class Packet:
    """A frame, and when it came."""

    at_us: int
    frame: bytes


def read_pcap(path: Path) -> list[Packet]:
    """The packets of a file; none where there is no file."""
    data = path.read_bytes() if path.exists() else b""
    packets, at = [], PCAP_BYTES
    while at + RECORD_BYTES <= len(data):
        seconds, micros, captured, _ = struct.unpack_from("<IIII", data, at)
        at += RECORD_BYTES
        packets.append(Packet(seconds * 1_000_000 + micros, data[at : at + captured]))
        at += captured
    return packets


def pcap_header() -> bytes:
    """What a file of packets begins with."""
    return struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)


def record(at_us: int, frame: bytes) -> bytes:
    """A packet of a file."""
    return struct.pack("<IIII", at_us // 1_000_000, at_us % 1_000_000, len(frame), len(frame)) + frame


def write_pcap(path: Path, packets: Sequence[Packet]) -> None:
    """Writes a file of packets."""
    path.write_bytes(pcap_header() + b"".join(record(packet.at_us, packet.frame) for packet in packets))


class Case:
    """A folder of packets in and out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about = json.loads((folder / "case.json").read_text())
        self.ports = range(self.about["ports"])

    def into(self, port: int) -> list[Packet]:
        """What comes by a port."""
        return read_pcap(self.folder / f"p{port}_in.pcap")

    def out(self, port: int) -> list[Packet]:
        """What must leave by a port."""
        return read_pcap(self.folder / f"p{port}_out.pcap")

    def in_order(self) -> list[tuple[int, int, bytes]]:
        """What comes by all ports: time, port, frame."""
        return sorted((packet.at_us, port, packet.frame) for port in self.ports for packet in self.into(port))

    def due(self) -> dict[tuple[int, int], int]:
        """By port and time of the packet in: bytes that a file of what leaves has then."""
        found = {}
        for port in self.ports:
            length = PCAP_BYTES
            for packet in self.out(port):
                length += RECORD_BYTES + len(packet.frame)
                found[port, packet.at_us] = length
        return found


@dataclass(frozen=True)
class Difference:
    """Where the program and the state machine disagree."""

    port: int
    number: int
    wanted: Packet | None
    got: Packet | None


def fields(frame: bytes, headers: Sequence[str]) -> dict[str, int]:
    """The fields of a frame's headers, as far as it is long enough."""
    formats = json.loads((PROGRAMS / "fields.json").read_text())
    headers = OTHERS.get(frame[12:14], headers)
    bits, at, found = int.from_bytes(frame, "big"), 0, {}
    for header in headers:
        for name, length in formats[header]:
            if at + length > 8 * len(frame):
                return found
            found[f"{header}.{name}"] = bits >> (8 * len(frame) - at - length) & ((1 << length) - 1)
            at += length
    return found


def front_bytes(headers: Sequence[str]) -> int:
    """Length of the headers in bytes."""
    formats = json.loads((PROGRAMS / "fields.json").read_text())
    return sum(length for header in headers for _, length in formats[header]) // 8


def in_words(case: Case, difference: Difference) -> str:
    """A difference, for people."""
    headers = case.about["headers"]
    wanted, got = difference.wanted, difference.got
    lines = [f"{case.folder.name}: port {difference.port}, packet {difference.number}"]
    if wanted is None or got is None:
        frame = wanted or got
        assert frame is not None
        lines.append("  the program sends nothing more, where this is due:" if got is None else "  the program sends one more:")
        lines += [f"    {name} = {value:#x}" for name, value in fields(frame.frame, headers).items()]
    else:
        left, right = fields(wanted.frame, headers), fields(got.frame, headers)
        for name in left | right:
            if left.get(name) != right.get(name):
                lines.append(f"    {name}: {shown(left.get(name))} expected, {shown(right.get(name))} came")
        front = front_bytes(headers)
        lines += elements_in_words(wanted.frame[front:], got.frame[front:])
    cause = wanted.at_us if wanted is not None else None
    for port in case.ports if cause is not None else ():
        for packet in case.into(port):
            if packet.at_us == cause:
                lines.append(f"  for the packet that came by port {port}, {packet.at_us - 1_000_000} us after the first:")
                lines += [f"    {name} = {value:#x}" for name, value in fields(packet.frame, headers).items()]
    return "\n".join(lines)


def shown(value: int | None) -> str:
    """A field's value."""
    return "nothing" if value is None else f"{value:#x}"


def elements_in_words(wanted: bytes, got: bytes) -> list[str]:
    """The first elements that differ."""
    if len(wanted) != len(got):
        return [f"    {len(wanted)} bytes of elements expected, {len(got)} came"]
    places = [at for at in range(0, len(wanted), 4) if wanted[at : at + 4] != got[at : at + 4]]
    lines = [f"    element {at // 4}: {wanted[at : at + 4].hex()} expected, {got[at : at + 4].hex()} came" for at in places[:4]]
    return lines + ([f"    and {len(places) - 4} more elements"] if len(places) > 4 else [])


def compiler() -> list[str]:
    """The compiler's command."""
    if shutil.which("p4c-bm2-ss"):
        return ["p4c-bm2-ss"]
    return ["p4c", "--target", "bmv2", "--arch", "v1model"]


def compiled(case: Case, folder: Path, programs: Path = PROGRAMS) -> Path:
    """The program of a case, compiled with its sizes, once each."""
    about = case.about
    defines = [f"-D{name}={value}" for name, value in about["defines"]]
    name = "-".join([about["program"], *(f"{name}{value}" for name, value in about["defines"])])
    target = folder / f"{name}.json"
    if not target.exists():
        source = programs / f"{about['program']}.p4"
        output = ["-o", str(target)] if shutil.which("p4c-bm2-ss") else ["-o", str(folder)]
        done = subprocess.run([*compiler(), *defines, str(source), *output], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{source.name} does not compile:\n{done.stderr}{done.stdout}")
        if not target.exists():
            (folder / f"{about['program']}.json").rename(target)
    return target


def in_tna(case: Case, folder: Path, programs: Path = PROGRAMS) -> tuple[Case, Path] | None:
    """A case for a program's version in TNA, and that version on v1model; nothing where there is none.

    The packets in are those that both versions judge alike, and the state machine says anew what is due for them.
    """
    program = case.about["program"]
    source = programs / "tna" / f"{program}.p4"
    if not source.exists():
        return None
    shutil.copytree(case.folder, folder)
    switch = json.loads((folder / "switch.json").read_text())
    defines = dict(case.about["defines"]) | p4_tna.sizes(program, switch)
    (folder / "switch.json").write_text(json.dumps(switch))
    commands = generator("control", program, str(folder / "switch.json"))
    (folder / "commands.txt").write_text(p4_tna.commands(program, commands, defines))
    packets = list(p4_tna.seen(program, case.in_order(), lambda frame: fields(frame, case.about["headers"]), defines, switch))
    for port in case.ports:
        write_pcap(folder / f"p{port}_in.pcap", [Packet(at_us, frame) for at_us, by, frame in packets if by == port])
    generator("replay", str(folder))
    for port in case.ports:
        short = [Packet(at_us, p4_tna.shortened(program, frame)) for at_us, by, frame in packets if by == port]
        write_pcap(folder / f"p{port}_in.pcap", short)
    text, made = folder / f"{program}.p4", folder / f"{program}.json"
    text.write_text(p4_tna.translated(source, [f"-D{name}={value}" for name, value in defines.items()], AGAIN_PORT))
    done = subprocess.run([*compiler(), str(text), "-o", str(made)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"tna/{source.name} does not compile on v1model:\n{done.stderr}{done.stdout}")
    return Case(folder), made


def run_in_tna(folders: Sequence[Path]) -> int:
    """Plays cases through the programs in TNA; the exit code."""
    failed, played = 0, 0
    for folder in folders:
        with tempfile.TemporaryDirectory(prefix="fanin-tna-") as name:
            prepared = in_tna(Case(folder), Path(name) / "case")
            if prepared is None:
                continue
            case, program = prepared
            found = play(case, program)
            come = len(case.in_order())
            sent = sum(len(case.out(port)) for port in case.ports)
            played, failed = played + 1, failed + bool(found)
            of = len(Case(folder).in_order())
            print(f"{folder.name} in TNA: {come} of {of} packets in, {sent} out, {'DIFFERENT' if found else 'the same'}", flush=True)
            if found:
                print("\n".join(in_words(case, difference) for difference in found), flush=True)
    print(f"{played - failed} of {played} cases are the same in TNA")
    return 1 if failed else 0


def tofino(writes: bool) -> int:
    """Compiles the programs in TNA, and compares what they take with what is kept; the exit code."""
    reason = p4_tofino.obstacle()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    with tempfile.TemporaryDirectory(prefix="fanin-tofino-") as folder:
        found = {}
        for name in p4_tofino.BUILDS:
            found[name] = p4_tofino.resources(name, p4_tofino.compiled(name, Path(folder)))
            print(f"{name}: {found[name]['stages_needed']} of {found[name]['stages']} stages", flush=True)
    if writes:
        p4_tofino.KEPT.write_text(json.dumps(found, indent=2) + "\n")
    print(p4_tofino.table(found))
    kept = json.loads(p4_tofino.KEPT.read_text())
    wrong = p4_tofino.differences(kept, found)
    print("\n".join(wrong) if wrong else "as in dataplanes/p4/tna/resources.json")
    return 1 if wrong else 0


def free_port() -> int:
    """A TCP port that nobody has."""
    with socket.socket() as any_socket:
        any_socket.bind(("127.0.0.1", 0))
        number: int = any_socket.getsockname()[1]
        return number


class Feed:
    """Packets for bmv2, one after the other, through named pipes.

    bmv2 plays files as fast as it can read them. Where packets pass several times those passes would then mix with the next packets', and
    its queues would overflow. It has to know the next packet of every file to see which is first, so it waits for that of the port whose
    packet it has just taken: as long as that is not written, nothing more comes.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.pipes: dict[int, int] = {}
        for port in case.ports:
            path = folder / f"p{port}_in.pcap"
            os.mkfifo(path)
            # For both, so that nobody waits for the other end.
            self.pipes[port] = os.open(path, os.O_RDWR)
            os.write(self.pipes[port], pcap_header())

    def close(self, port: int) -> None:
        """Nothing more comes by a port."""
        if port in self.pipes:
            os.close(self.pipes.pop(port))

    def play(self) -> None:
        """Gives all packets, each after what the one before makes leave has left."""
        packets = self.case.in_order()
        waiting = {port: [record(at_us, frame) for at_us, by, frame in packets if by == port] for port in self.case.ports}
        due = self.case.due()
        for port in self.case.ports:
            self.next(port, waiting)
        late = False
        for number, (at_us, port, _) in enumerate(packets):
            gap_us = packets[number + 1][0] - at_us if number + 1 < len(packets) else 0
            time.sleep(gap_us / 1e6)
            if not late:
                # Where something does not leave, there is a difference: nothing is waited for any more.
                late = not self.left({to: length for (to, at), length in due.items() if at == at_us})
            self.next(port, waiting)
        time.sleep(GRACE_S)

    def next(self, port: int, waiting: dict[int, list[bytes]]) -> None:
        """Gives the next packet of a port."""
        if waiting[port]:
            os.write(self.pipes[port], waiting[port].pop(0))
        else:
            self.close(port)

    def left(self, lengths: dict[int, int]) -> bool:
        """Waits until files of what leaves are so long."""
        deadline = time.monotonic() + LATE_S
        paths = {self.folder / f"p{port}_out.pcap": length for port, length in lengths.items()}
        while any(path.stat().st_size < length for path, length in paths.items()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.000_5)
        return True


@contextlib.contextmanager
def switch(case: Case, program: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """bmv2 in a folder with the pipes of a case; it writes files of what leaves there."""
    thrift = free_port()
    interfaces = [word for port in case.ports for word in ("-i", f"{port}@p{port}")]
    command = ["simple_switch", "--use-files", "0", *interfaces, "--thrift-port", str(thrift), "--device-id", str(thrift), str(program)]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process, thrift
    finally:
        process.kill()
        process.wait()


def configure(commands: str, thrift: int) -> None:
    """Fills the tables, as soon as the switch listens."""
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", thrift), timeout=1):
            break
        if time.monotonic() > deadline:
            raise Failed(f"simple_switch does not listen after {START_S:.0f} s")
        time.sleep(0.02)
    done = subprocess.run(
        ["simple_switch_CLI", "--thrift-port", str(thrift)], input=commands, capture_output=True, text=True, check=False
    )
    wrong = [line for line in done.stdout.splitlines() if any(word in line for word in ("Invalid", "Error", "Unknown", "error"))]
    if done.returncode != 0 or wrong:
        raise Failed(f"simple_switch_CLI: {wrong[:3] or done.stderr or done.stdout}")


def play(case: Case, program: Path) -> list[Difference]:
    """Plays a case; where what leaves is not what must."""
    with tempfile.TemporaryDirectory(prefix="fanin-p4-") as name:
        folder = Path(name)
        feed = Feed(case, folder)
        try:
            with switch(case, program, folder) as (process, thrift):
                configure((case.folder / "commands.txt").read_text(), thrift)
                feed.play()
                if process.poll() is not None:
                    raise Ended(f"simple_switch ended: {(folder / 'log.txt').read_text()[-600:]}")
        finally:
            for port in case.ports:
                feed.close(port)
        return [found for port in case.ports if (found := first_difference(port, case.out(port), read_pcap(folder / f"p{port}_out.pcap")))]


def first_difference(port: int, wanted: Sequence[Packet], got: Sequence[Packet]) -> Difference | None:
    """The first packets at a port that are not the same."""
    for number in range(max(len(wanted), len(got))):
        left = wanted[number] if number < len(wanted) else None
        right = got[number] if number < len(got) else None
        if left is None or right is None or left.frame != right.frame:
            return Difference(port, number, left, right)
    return None


def cut(case: Case, keep: set[tuple[int, int]], folder: Path) -> Case:
    """A case with some of the packets in, and what the state machine says to those."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("case.json", "switch.json", "commands.txt"):
        shutil.copy(case.folder / name, folder)
    for port in case.ports:
        write_pcap(folder / f"p{port}_in.pcap", [packet for packet in case.into(port) if (port, packet.at_us) in keep])
    generator("replay", str(folder))
    return Case(folder)


def shrink(case: Case, program: Path, differences: Sequence[Difference]) -> Case:
    """A part of the case that still shows a difference."""
    come = sorted((packet.at_us, port) for port in case.ports for packet in case.into(port))
    ends = [found.wanted.at_us for found in differences if found.wanted is not None]
    kept = [(port, at_us) for at_us, port in come if not ends or at_us <= min(ends)]
    folder = OUT / case.folder.name
    shutil.rmtree(folder, ignore_errors=True)
    best, size, begin = case, max(1, len(kept) // 2), 0
    for number in range(SHRINKS):
        fewer = kept[:begin] + kept[begin + size :]
        smaller = cut(case, set(fewer), folder / f"try-{number}")
        if fewer and play(smaller, program):
            kept, best = fewer, smaller
        else:
            begin += size
        if begin >= len(kept):
            if size == 1:
                break
            size, begin = size // 2, 0
    for tried in folder.iterdir():
        if tried != best.folder:
            shutil.rmtree(tried)
    return best


def generator(*arguments: str) -> str:
    """Runs `fanin-p4`; what it prints."""
    command = ["cargo", "run", "--locked", "--quiet", "-p", "fanin-p4", "--", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed")
    return done.stdout


def run(folders: Sequence[Path], shrinks: bool) -> int:
    """Plays cases; the exit code."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fanin-p4c-") as programs:
        for folder in folders:
            case = Case(folder)
            program = compiled(case, Path(programs))
            differences = play(case, program)
            sent = sum(len(case.out(port)) for port in case.ports)
            if not differences:
                print(f"{folder.name}: {case.about['packets']} packets in, {sent} out, the same", flush=True)
                continue
            failed += 1
            print("\n".join(in_words(case, difference) for difference in differences), flush=True)
            if shrinks:
                smaller = shrink(case, program, differences)
                print(f"the smallest case found has {len(smaller.in_order())} packets in, and is in {smaller.folder}:")
                print("\n".join(in_words(smaller, difference) for difference in play(smaller, program)), flush=True)
    print(f"{len(folders) - failed} of {len(folders)} cases are the same")
    return 1 if failed else 0


def found_by(cases: Sequence[Case], mutant: Sequence[str]) -> str | None:
    """Which case shows a mistake: the program with one text in place of another."""
    file, before, after, _ = mutant
    with tempfile.TemporaryDirectory(prefix="fanin-mutant-") as name:
        programs = Path(name) / "p4"
        shutil.copytree(PROGRAMS, programs, ignore=shutil.ignore_patterns("golden"))
        text = (programs / file).read_text()
        if text.count(before) != 1:
            raise Failed(f"mutants.json: {before!r} is {text.count(before)} times in {file}")
        (programs / file).write_text(text.replace(before, after))
        for case in cases:
            try:
                if file.startswith("tna/"):
                    prepared = in_tna(case, Path(name) / case.folder.name, programs)
                    assert prepared is not None, file
                    differences = play(*prepared)
                else:
                    differences = play(case, compiled(case, Path(name), programs))
            except Ended:
                return case.folder.name
            if differences:
                return case.folder.name
    return None


def mutants(chosen: Sequence[str]) -> int:
    """Plays cases through programs with a mistake each; the exit code."""
    survived = 0
    with tempfile.TemporaryDirectory(prefix="fanin-golden-") as fresh:
        generator("golden", fresh, "--seed", "77", "--packets", "600")
        cases = [Case(folder) for folder in [*sorted((PROGRAMS / "golden").iterdir()), *sorted(Path(fresh).iterdir())]]
        for program, listed in json.loads((PROGRAMS / "mutants.json").read_text()).items():
            for mutant in listed if not chosen or program in chosen else ():
                found = found_by([case for case in cases if case.about["program"] == program.removeprefix("tna/")], mutant)
                survived += found is None
                print(f"{program}: {mutant[3]}: {f'found by {found}' if found else 'NOT FOUND'}", flush=True)
    print(f"{survived} mistakes were not found")
    return 1 if survived else 0


def main(arguments: Sequence[str]) -> int:
    """The program; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="the committed cases, and fresh ones")
    check.add_argument("--seed", type=int, default=1_000, help="of the first fresh cases; 1000 if it is not given")
    check.add_argument("--packets", type=int, default=600, help="of each fresh case; 600 if it is not given")
    check.add_argument("--cases", type=int, default=1, help="fresh cases of each shape; 1 if it is not given")
    some = commands.add_parser("run", help="these cases")
    some.add_argument("folders", nargs="+", type=Path)
    mistakes = commands.add_parser("mutants", help="programs with a mistake each")
    mistakes.add_argument("programs", nargs="*", metavar="PROGRAM")
    tna = commands.add_parser("tna", help="what the programs in TNA take of a Tofino")
    tna.add_argument("--write", action="store_true", help="what is found is kept")
    for each in (check, some):
        each.add_argument("--no-shrink", action="store_true", help="a case that differs stays as long as it is")
    options = parser.parse_args(arguments)
    if options.command == "tna":
        try:
            return tofino(options.write)
        except p4_tofino.UnplacedError as error:
            print(error, file=sys.stderr)
            return 1
    reason = obstacle()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    try:
        if options.command == "mutants":
            return mutants(options.programs)
        if options.command == "run":
            folders = [folder.resolve() for folder in options.folders]
            return run(folders, not options.no_shrink) | run_in_tna(folders)
        with tempfile.TemporaryDirectory(prefix="fanin-golden-") as fresh:
            generator("golden", fresh, "--seed", str(options.seed), "--packets", str(options.packets), "--cases", str(options.cases))
            committed = sorted((PROGRAMS / "golden").iterdir())
            folders = [*committed, *sorted(Path(fresh).iterdir())]
            return run(folders, not options.no_shrink) | run_in_tna(folders)
    except (Failed, p4_tna.UntranslatableError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
