#!/usr/bin/env python3
"""Reads what `fanin trace` and `fanin switch --transparent --trace` have written with scapy, which judges every check: ICRCs of RoCEv2, checksums.

Usage: trace_tests.py [--fanin PATH] [FILE ...]

Makes an environment with scapy in target/trace. tshark reads the traces with the dissector that `fanin trace --dissector` writes, where it is
installed or can be, and so it reads what the processes of a testbed send each other, where this may be captured. With files it only judges these. Exits with 1 where something is wrong. Python's standard
library only, outside of that environment.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Sequence
from pathlib import Path

import packages

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "target" / "trace"
SCAPY = "scapy==2.8.0"

#: What runs in the environment: counts frames, and those of which something is wrong, one JSON object a file.
JUDGE = """
import json, sys
from scapy.all import IP, TCP, UDP, Ether, RawPcapNgReader
from scapy.contrib.roce import BTH

def count(path):
    found = dict(frames=0, roce=0, icrc_wrong=0, udp=0, checksum_wrong=0, tcp=0, others=0, opcodes={}, interfaces=[], backwards=0)
    last = 0
    reader = RawPcapNgReader(path)
    for raw, meta in reader:
        found["frames"] += 1
        name = meta.ifname.decode() if isinstance(meta.ifname, bytes) else meta.ifname
        if name not in found["interfaces"]:
            found["interfaces"].append(name)
        found["backwards"] += (meta.tshigh << 32 | meta.tslow) < last
        last = meta.tshigh << 32 | meta.tslow
        found["per_second"] = meta.tsresol
        frame = Ether(raw)
        if BTH in frame:
            found["roce"] += 1
            opcode = str(frame[BTH].opcode)
            found["opcodes"][opcode] = found["opcodes"].get(opcode, 0) + 1
            length = 14 + frame[IP].len
            # scapy computes from all that stands before the ICRC, which Ethernet may have padded.
            whole = Ether(raw[:length])
            stored = raw[length - 4:length]
            found["icrc_wrong"] += whole[BTH].compute_icrc(bytes(whole[BTH])[:-4]) != stored
            layers = (IP,)
        elif IP in frame and UDP in frame:
            found["udp"] += 1
            layers = (IP, UDP)
        elif IP in frame:
            # Checksums of TCP may be left to whoever sends.
            found["tcp"] += TCP in frame
            layers = (IP,)
        else:
            found["others"] += 1
            layers = ()
        again = frame.copy()
        for layer in layers:
            del again[layer].chksum
        again = Ether(bytes(again))
        for layer in layers:
            found["checksum_wrong"] += frame[layer].chksum not in (0, again[layer].chksum)
    found["interfaces"].sort()
    return found

print(json.dumps([count(path) for path in sys.argv[1:]]))
"""

PLAN = """
[network]
{shape}
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "{system}"
workers = 4
message = "64KiB"
"""
SHAPES = {
    "star": 'shape = "star"\nhosts = 6',
    "fat-tree": 'shape = "fat-tree"\nleaves = 2\nhosts_per_leaf = 3\nspines = 1',
}


def dissector(fanin: str, folder: Path) -> Path:
    """Our dissector for Wireshark."""
    lua = folder / "fanin.lua"
    subprocess.run([fanin, "trace", "--dissector", str(lua)], check=True)
    return lua


def formats(lua: Path) -> dict[str, str]:
    """The systems that have packets of their own, and by what Wireshark's name for it packets are told apart: a field that all of them have, or the kind."""
    found = {}
    for name, fields in re.findall(r'^  name = "(\w+)", title = .*?^  fields = \{(.*?)^  \},', lua.read_text(), re.DOTALL | re.MULTILINE):
        common = re.search(r'name = "(\w+)", at = [^{}]* kinds = nil', fields)
        found[name] = f"fanin.{name}.{common[1] if common else 'kind'}"
    return {name: field for name, field in found.items() if name not in ("hop", "link")}


def judge(files: Sequence[Path]) -> list[dict]:
    """What scapy finds in files."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / SCAPY).exists():
        ENVIRONMENT.parent.mkdir(exist_ok=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", SCAPY], check=True)
        (ENVIRONMENT / SCAPY).touch()
    done = subprocess.run([str(python), "-c", JUDGE, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"scapy cannot read {', '.join(map(str, files))}: {done.stderr.strip()[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def complaints(name: str, found: dict) -> list[str]:
    """What is wrong with a file, in words."""
    wrong = [f"{name}: {found[key]} frames with a wrong {words}" for key, words in (("icrc_wrong", "ICRC"), ("checksum_wrong", "checksum"), ("backwards", "order")) if found[key]]
    if found["frames"] == 0:
        wrong.append(f"{name}: nothing is in it")
    elif found["per_second"] != 1_000_000_000:
        wrong.append(f"{name}: times are not in nanoseconds")
    return wrong


def simulated(fanin: str, folder: Path) -> list[tuple[str, dict, list[str]]]:
    """Traces of all systems, on one switch and on several: name, what is in it, what is wrong."""
    names, files = [], []
    # The first one is whose message is spoiled below.
    systems = sorted(formats(dissector(fanin, folder)), key=lambda system: system != "netreduce")
    for system in systems:
        for shape, text in SHAPES.items():
            plan, out = folder / f"{system}-{shape}.toml", folder / f"{system}-{shape}.pcapng"
            plan.write_text(PLAN.format(shape=text, system=system))
            subprocess.run([fanin, "trace", str(plan), "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
            names.append(plan.stem)
            files.append(out)
    # The judge is one: of a bit that is turned in the first message it must know.
    spoiled = folder / "spoiled.pcapng"
    whole = files[0].read_bytes()
    at = whole.index(bytes.fromhex("1ae7fa41")) + 4
    spoiled.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    if (found := judge([spoiled])[0])["icrc_wrong"] != 1:
        raise RuntimeError(f"scapy has not seen that a bit is wrong: {found}")
    rows = []
    for name, found in zip(names, judge(files), strict=True):
        wrong = complaints(name, found)
        is_roce = name.startswith("netreduce")
        if found["roce" if is_roce else "udp"] != found["frames"]:
            wrong.append(f"{name}: {found}")
        rows.append((name, found, wrong))
    return rows


def dissected(fanin: str, folder: Path) -> list[str]:
    """What tshark does not know of the traces in a folder, with our dissector. Traces of NetReduce it knows by itself."""
    lua = dissector(fanin, folder)
    naming = formats(lua)
    wrong = []
    for path in sorted(folder.glob("*.pcapng")):
        system = path.stem.split("-")[0]
        if system not in naming or system == "netreduce":
            continue
        field = naming[system]
        command = ["tshark", "-n", "-X", f"lua_script:{lua}", "-r", str(path), "-T", "fields", "-e", "_ws.col.Protocol", "-e", "fanin.system", "-e", field]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        unknown = [line for line in lines if line[0] != "Fanin" or not all(line[1:])]
        complaints = [line for line in done.stderr.splitlines() if "lua" in line.lower() and "Running as user" not in line]
        if done.returncode != 0 or not lines or unknown or complaints:
            wrong.append(f"{path.stem}: tshark: {len(unknown)} of {len(lines)} packets without {field}; {done.returncode} {' '.join(complaints)[:400]}")
    return wrong


#: A job of the testbed whose packets are captured, and its blocks.
WORKLOAD = '''
[[job]]
system = "canary"
timeout = "10ms"
message = "64KiB"
rto_min = "100ms"
'''
BLOCKS = 47


def captured(fanin: str, folder: Path) -> list[str]:
    """What tshark does not know, with our dissector, of what processes have sent each other over the loopback device."""
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # type: ignore[attr-defined]
    except (AttributeError, PermissionError) as error:
        print(f"skipped: packets of processes: they cannot be captured here: {error}")
        return []
    tap.bind(("lo", 0))
    tap.settimeout(0.2)
    path, over = folder / "processes.pcap", threading.Event()

    def listen() -> None:
        with tap, path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1))
            while not over.is_set():
                try:
                    frame = tap.recv(1 << 18)
                except TimeoutError:
                    continue
                now = time.time_ns()
                file.write(struct.pack("<IIII", now // 10**9, now // 1000 % 10**6, len(frame), len(frame)) + frame)

    workload = folder / "workload.toml"
    workload.write_text(WORKLOAD)
    listener = threading.Thread(target=listen)
    listener.start()
    try:
        command = [fanin, "testbed", str(ROOT / "examples" / "testbed" / "fabric.toml"), str(workload)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        over.set()
        listener.join()
    if done.returncode != 0:
        return [f"processes: the testbed: {done.stdout[-400:]}{done.stderr[-400:]}"]
    lua = dissector(fanin, folder)
    # All of canary's headers name a block. Datagrams are captured before they are cut up: a frame may have several.
    command = ["tshark", "-n", "-X", f"lua_script:{lua}", "-r", str(path), "-Y", "fanin.system == 3"]
    done = subprocess.run([*command, "-T", "fields", "-e", "fanin.canary.block", "-e", "fanin.system"], capture_output=True, text=True, check=False)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    blocks = {int(block) for line in lines for block in line[0].split(",") if block}
    bare = [line for line in lines if line[0].count(",") != line[1].count(",") or not line[0]]
    if bare or not blocks >= set(range(BLOCKS)) or max(blocks) > 2 * BLOCKS:
        return [f"processes: tshark: {len(bare)} of {len(lines)} frames without a block for each packet; blocks {sorted(blocks)[:3]} to {max(blocks, default=None)}"]
    print(f"processes: {len(lines)} frames of canary, blocks 0 to {max(blocks)}")
    return []


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="target/debug/fanin")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    if args.files:
        rows = [(str(path), found, complaints(str(path), found)) for path, found in zip(args.files, judge(args.files), strict=True)]
    else:
        with tempfile.TemporaryDirectory(prefix="fanin-trace-") as name:
            rows = simulated(args.fanin, Path(name))
            reason = packages.missing(["tshark"], lambda: shutil.which("tshark") is not None)
            unread = [] if reason else dissected(args.fanin, Path(name)) + captured(args.fanin, Path(name))
            print(f"skipped: tshark: {reason}" if reason else "tshark and the dissector: " + ("; ".join(unread) or "every packet is known"))
            if unread:
                rows.append(("tshark", {"frames": 0, "interfaces": [], "roce": 0, "opcodes": {}}, unread))
    for name, found, wrong in rows:
        print(f"{name}: {found['frames']} frames at {len(found['interfaces'])} interfaces, {found['roce']} of RoCEv2 {found['opcodes'] or ''}".rstrip())
        for words in wrong:
            print(f"wrong: {words}")
    return 1 if any(wrong for _, _, wrong in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
