#!/usr/bin/env python3
"""What floods of one tenant cost the jobs of another, and what keys for packets cost: goodput in turns, as ratios.

Usage: floods.py [--rounds N] [--rate PACKETS_PER_SECOND] [--share CORES] [--format table|json]

Namespaces on a bridge (root only): two ranks of the tenant `red` with links of 1 Gbit/s each, a switch with `--keys`, TLS and `--packets
seal`, the attacker, and a host that nobody minds. In each round every kind of flood is poured twice: at the port of red's job, and at the
host that nobody minds, as many of the same packets. The ratio of red's goodput is what the flood costs red, without what it costs this
machine to send it. The attacker has a cgroup with `--share` of a core.

    random     random bytes, from the attacker's own address
    spoofed    packets of red's ranks, in their name: altered behind a right header, cut short, with a bit turned over
    replayed   packets of red's ranks, in their name, as they were
    handshakes connections to the control port with half of a TLS handshake, a hundredth as many

The packets of red's ranks are recorded at the switch as its job begins, which is more than an attacker has who cannot read its links. A
sum that is wrong is a failure. Then the same job by switches with `--packets none`, `mac` and `seal`, in turns. Prints medians, the
lowest and the highest ratio, and the machine's load. Python's standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import garbage
import measurement
import namespaces
from bench_peers import fanin_program
from processes import Crew, Failed

ROUNDS, RATE, SHARE = 5, 10_000, 0.25
LINK_RATE, SIZE, CALLS, TIMEOUT_S = "1gbit", 16 << 20, 10, 120.0
FORGED = ("spoofed", "replayed")
KINDS = ("random", *FORGED, "handshakes")
PROTECTIONS = ("none", "mac", "seal")
CONTROL, DATA, HTTP, SINK = 7_700, 7_800, 9_470, 7_900
RANKS, ATTACKER, BYSTANDER = 2, 2, 3
#: Handshakes for each hundred packets.
HANDSHAKE_PART = 100
#: The head of a record of TLS, and what a greeting begins with; the rest never comes.
HALF_A_HANDSHAKE = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3])
#: Connections that are left open at once.
OPEN_MAX = 200
#: How many packets are recorded.
RECORDED = 256


@contextlib.contextmanager
def cgroup(share: float) -> Iterator[Path]:
    """A cgroup whose processes get so much of a core: its file of processes. Of version 2, or of 1 where that has the controller."""
    root = Path("/sys/fs/cgroup")
    controllers = root / "cgroup.controllers"
    name, period_us = f"fanin-floods-{os.getpid()}", 20_000
    if controllers.exists() and "cpu" in controllers.read_text().split():
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text("+cpu")
        group, limits = root / name, [("cpu.max", f"{int(share * period_us)} {period_us}")]
    elif (root / "cpu" / "cpu.cfs_quota_us").exists():
        group, limits = root / "cpu" / name, [("cpu.cfs_period_us", str(period_us)), ("cpu.cfs_quota_us", str(int(share * period_us)))]
    else:
        raise Failed("no cgroup with the controller `cpu` (/sys/fs/cgroup, version 2 or 1)")
    for left in group.parent.glob("fanin-floods-*"):
        # Of a run that was killed.
        if not namespaces.is_alive(int(left.name.rpartition("-")[2])):
            with contextlib.suppress(OSError):
                left.rmdir()
    group.mkdir()
    try:
        for file, value in limits:
            (group / file).write_text(value)
        yield group / "cgroup.procs"
    finally:
        # Its processes have ended; the kernel may take a moment to see it.
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def recorded(port: int) -> list[tuple[str, int, bytes]]:
    """Packets that come to this port of the namespace: address, port, payload."""
    found: list[tuple[str, int, bytes]] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(garbage.ETH_P_IP)) as ear:
        ear.setsockopt(263, garbage.PACKET_VNET_HDR, 1)  # SOL_PACKET
        ear.bind((namespaces.INTERFACE, garbage.ETH_P_IP))
        ear.settimeout(20)
        while len(found) < RECORDED:
            frame = ear.recv(1 << 17)
            source = socket.inet_ntoa(frame[garbage.OFFLOAD_BYTES + garbage.ETHERNET_BYTES + 12 :][:4])
            found.extend((source, from_port, payload) for from_port, payload in garbage.datagrams_of(frame, port))
    return found


def forged(source: tuple[str, int], target: tuple[str, int], payload: bytes) -> bytes:
    """A datagram with all its headers, in somebody's name. Without a checksum, which IPv4 allows."""
    total = garbage.IP_BYTES + garbage.UDP_BYTES + len(payload)
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
    ip = struct.pack("!BBHHHBBH", 0x45, 0, total, 0, 0, 64, socket.IPPROTO_UDP, 0) + addresses
    return ip + struct.pack("!HHHH", source[1], target[1], garbage.UDP_BYTES + len(payload), 0) + payload


def packets(kind: str, known: Sequence[tuple[str, int, bytes]], target: tuple[str, int]) -> list[bytes]:
    """What is sent of a kind. Whatever is in another's name has its headers already."""
    dice = random.Random(1)
    if kind == "random":
        return [dice.randbytes(dice.randrange(1, 1_400)) for _ in range(64)]
    if kind == "replayed":
        return [forged((address, port), target, payload) for address, port, payload in known]
    changes = [garbage.altered, lambda payload, dice: payload[: dice.randrange(1, max(2, len(payload)))], garbage.with_a_wrong_bit]
    changed = [(address, port, change(payload, dice)) for address, port, payload in known for change in changes]
    return [forged((address, port), target, payload) for address, port, payload in changed if payload]


def pour(kind: str, target: tuple[str, int], rate: float, known: Sequence[tuple[str, int, bytes]]) -> dict:
    """Sends until it is told to end by SIGTERM."""
    is_over: list[bool] = []
    signal.signal(signal.SIGTERM, lambda _number, _frame: is_over.append(True))
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    forger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    sender = own if kind == "random" else forger
    sender.setblocking(False)
    order = itertools.cycle(packets(kind, known, target))
    sent, begin = 0, time.monotonic()
    while not is_over:
        due = int((time.monotonic() - begin) * rate) - sent
        for packet in itertools.islice(order, max(0, min(due, 1_000))):
            sent += 1
            with contextlib.suppress(OSError):
                sender.sendto(packet, target)
        time.sleep(garbage.TICK_S)
    return {"per_s": sent / (time.monotonic() - begin)}


def shake(target: tuple[str, int], rate: float) -> dict:
    """Begins handshakes until it is told to end by SIGTERM; none is ever whole."""
    is_over: list[bool] = []
    signal.signal(signal.SIGTERM, lambda _number, _frame: is_over.append(True))
    begun: list[socket.socket] = []
    count, begin = 0, time.monotonic()
    while not is_over:
        if count < (time.monotonic() - begin) * rate:
            count += 1
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            one.settimeout(1)
            with contextlib.suppress(OSError):
                one.connect(target)
                one.sendall(HALF_A_HANDSHAKE)
            begun.append(one)
            if len(begun) > OPEN_MAX:
                begun.pop(0).close()
        else:
            time.sleep(garbage.TICK_S)
    return {"per_s": count / (time.monotonic() - begin)}


@dataclass
class Place:
    """The network, and what its switches are known by."""

    star: namespaces.Star
    crew: Crew
    folder: Path
    share: float
    rate: int
    procs: Path
    known: Path

    def fanin(self, *arguments: str) -> str:
        """What the program prints."""
        command = [str(fanin_program()), *arguments]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def make_keys(self) -> None:
        """A key, its tokens, a CA and a certificate."""
        (self.folder / "keys.toml").write_text(self.fanin("token", "new", "--name", "k", "--private", "issuer.key"))
        self.fanin("tls", "new", "tls", "--name", self.star.switch_address)

    def start_switch(self, number: int, packets: str) -> None:
        """A switch of the address's own ports, `number` behind the first ones."""
        address, files = self.star.switch_address, self.folder / "tls" / self.star.switch_address
        guarded = [
            "--keys",
            str(self.folder / "keys.toml"),
            "--tls-cert",
            f"{files}.pem",
            "--tls-key",
            f"{files}.key",
            "--packets",
            packets,
        ]
        at = [
            "--listen",
            f"{address}:{CONTROL + number}",
            "--http",
            f"127.0.0.1:{HTTP + number}",
            "--data-ports",
            f"{DATA + number}-{DATA + number}",
        ]
        switch = self.crew.start([*self.star.inside("switch"), str(fanin_program()), "switch", *at, *guarded])
        self.crew.wait_until_it_says(switch, "metrics at", time.monotonic() + TIMEOUT_S)

    def job(self, number: int) -> dict:
        """A job of red's; its row, with no wrong element."""
        token = self.fanin("token", "issue", "--private", "issuer.key", "--name", "k", "--tenant", "red", "--job", "red").strip()
        shared = {
            "FANIN_WORLD": str(RANKS),
            "FANIN_JOB": "red",
            "FANIN_SWITCH": f"{self.star.switch_address}:{CONTROL + number}",
            "FANIN_TLS": str(self.folder / "tls" / "ca.pem"),
            "FANIN_TOKEN": token,
        }
        command = [
            str(fanin_program()),
            "bench",
            "allreduce",
            "--sizes",
            str(SIZE),
            "--iterations",
            str(CALLS),
            "--transport",
            "udp",
            "--format",
            "json",
        ]
        deadline = time.monotonic() + TIMEOUT_S
        with Crew() as crew:
            ranks = [crew.start([*self.star.inside(rank), *command], shared | {"FANIN_RANK": str(rank)}) for rank in range(RANKS)]
            texts = [crew.finish(rank, deadline) for rank in ranks]
        row = measurement.only_row(texts[0])
        if row["wrong"]:
            raise Failed(f"{row['wrong']} elements of red's job are wrong")
        return row

    def flooded(self, kind: str, elsewhere: bool) -> tuple[float, float]:
        """Red's goodput in MB/s, and how many packets (or handshakes) a second were sent meanwhile."""
        address = self.star.worker_address(BYSTANDER) if elsewhere else self.star.switch_address
        port = (SINK if elsewhere else CONTROL) if kind == "handshakes" else (SINK if elsewhere else DATA)
        rate = self.rate / HANDSHAKE_PART if kind == "handshakes" else self.rate
        how = ["--target", f"{address}:{port}", "--rate", str(rate), "--known", str(self.known)]
        sender = [sys.executable, __file__, "--pour", kind, *how]
        confined = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(self.procs), *sender]
        # Ranks have other ports in each job, and whoever forges their packets has to know them.
        self.known.unlink(missing_ok=True)
        with Crew() as crew:
            if kind in FORGED:
                crew.start([*self.star.inside("switch"), sys.executable, __file__, "--record", str(DATA), "--known", str(self.known)])
            pouring = crew.start([*self.star.inside(ATTACKER), *confined])
            time.sleep(0.5)
            row = self.job(0)
            pouring.send_signal(signal.SIGTERM)
            poured = json.loads(crew.finish(pouring, time.monotonic() + TIMEOUT_S))
        return row["algbw_mb_s"], poured["per_s"]

    def dropped(self) -> dict[str, int]:
        """Packets that the first switch has dropped, by reason."""
        script = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
        url = f"http://127.0.0.1:{HTTP}/metrics"
        page = namespaces.must([*self.star.inside("switch"), sys.executable, "-c", script, url])
        prefix = 'fanin_switch_dropped_packets_total{reason="'
        lines = (line[len(prefix) :].split('"} ') for line in page.splitlines() if line.startswith(prefix))
        return {reason: int(float(count)) for reason, count in lines if float(count) > 0}


#: What takes packets and connections, and reads nothing.
BYSTANDING = """
import socket, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("0.0.0.0", {port}))
tcp = socket.create_server(("0.0.0.0", {port}), backlog=512); tcp.setblocking(False); taken = []
while True:
    time.sleep(0.01)
    try:
        while True: taken.append(tcp.accept()[0]); taken = taken[-200:]
    except BlockingIOError: pass
"""


def measure(rounds: int, rate: int, share: float) -> dict:
    """All ratios, by kind of flood and of protection."""
    begin = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, namespaces.Star(BYSTANDER + 1, LINK_RATE) as star, cgroup(share) as procs, Crew() as crew:
        place = Place(star, crew, Path(folder), share, rate, procs, Path(folder) / "known.json")
        place.make_keys()
        for number, packets_are in enumerate(("seal", *PROTECTIONS)):
            place.start_switch(number, packets_are)
        crew.start([*star.inside(BYSTANDER), sys.executable, "-c", BYSTANDING.format(port=SINK)])
        floods: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
        keys: dict[str, list[float]] = {name: [] for name in PROTECTIONS}
        for turn in range(rounds):
            for kind in KINDS:
                # Who comes first changes, so that what gets slower meanwhile hits both alike.
                order = (True, False) if turn % 2 == 0 else (False, True)
                got = {elsewhere: place.flooded(kind, elsewhere) for elsewhere in order}
                floods[kind].append((got[False][0] / got[True][0], got[False][0], got[False][1]))
            for number, name in enumerate(PROTECTIONS):
                keys[name].append(place.job(1 + number)["algbw_mb_s"])
        dropped = place.dropped()
    if not dropped.get("unauthenticated"):
        raise Failed(f"no forged packet has reached red's job: the switch has dropped {dropped}")
    return {"floods": floods, "keys": keys, "dropped": dropped, "load": (begin, os.getloadavg()[0]), "share": share}


def told(found: dict) -> list[str]:
    """For people."""
    lines = [f"an attacker with {found['share']:g} of a core; load {found['load'][0]:.1f} to {found['load'][1]:.1f}; no sum was wrong"]
    for kind, runs in found["floods"].items():
        ratios, goodputs, rates = zip(*runs, strict=True)
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"  {kind:10} {statistics.median(rates):9,.0f} /s   goodput {statistics.median(goodputs):6.0f} MB/s   ratio {spread}")
    lines.append("  dropped: " + ", ".join(f"{count:,} {reason}" for reason, count in found["dropped"].items()))
    plain = found["keys"]["none"]
    for name, runs in found["keys"].items():
        ratios = [one / other for one, other in zip(runs, plain, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"  {name:10} goodput {statistics.median(runs):6.0f} MB/s   ratio to none {spread}")
    return lines


def read_known(path: str) -> list[tuple[str, int, bytes]]:
    """Recorded packets; waits for them."""
    deadline = time.monotonic() + TIMEOUT_S
    while not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return [(address, port, bytes.fromhex(payload)) for address, port, payload in json.loads(Path(path).read_text())]


def main() -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rate", type=float, default=RATE, help="packets a second")
    parser.add_argument("--share", type=float, default=SHARE, help="of a core, for the attacker")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    # Of processes in namespaces.
    for hidden in ("--pour", "--target", "--known"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--record", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.record:
        found = [(address, port, payload.hex()) for address, port, payload in recorded(arguments.record)]
        # Whole, or not there.
        Path(arguments.known + ".part").write_text(json.dumps(found))
        os.replace(arguments.known + ".part", arguments.known)
        return 0
    if arguments.pour:
        host, port = arguments.target.rsplit(":", 1)
        target = (host, int(port))
        shakes = arguments.pour == "handshakes"
        known = read_known(arguments.known) if arguments.pour in FORGED else []
        print(json.dumps(shake(target, arguments.rate) if shakes else pour(arguments.pour, target, arguments.rate, known)))
        return 0
    obstacle = namespaces.obstacle()
    if obstacle:
        print(f"cannot be measured here: {obstacle}", file=sys.stderr)
        return 2
    # Whoever ends it leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    try:
        found = measure(arguments.rounds, int(arguments.rate), arguments.share)
    except (Failed, namespaces.NoNetwork) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found) if arguments.format == "json" else "\n".join(told(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
