#!/usr/bin/env python3
"""Measures sums inside TCP connections: workers in network namespaces around `fanin switch --transparent`, beside one TCP flow and a TCP ring
of the same workers through the same switch.

Usage: transparent.py [--fanin PROGRAM] [--workers N] [--rate RATE] [--size SIZE] [--iterations N] [--loss SHARE] [--congestion NAME]
                      [--out FILE] [CASE ...]

Cases: clean, loss, late, others. Needs root. Exits with 1 if a result is not exact. Python's standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Sequence

from measurement import only_row
from namespaces import INTERFACE, NoNetwork, Star, must, obstacle
from processes import Crew, Failed

PORT = 7_700
CASES = ("clean", "loss", "late", "others")
LATE = "1.0"
PATIENCE = 120.0

#: A host that is none of the workers': sends so many bytes by TCP, or receives them and prints their digest.
OTHER = """
import hashlib, socket, sys
role, family, address, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
data = hashlib.shake_128(b"other").digest(1 << 20)
if role == "receive":
    server = socket.create_server((address, 9000), family=family)
    connection, _ = server.accept()
    digest = hashlib.sha256()
    while part := connection.recv(1 << 16):
        digest.update(part)
    print(digest.hexdigest())
else:
    import time
    for _ in range(200):
        try:
            connection = socket.create_connection((address, 9000))
            break
        except OSError:
            time.sleep(0.05)
    for _ in range(count):
        connection.sendall(data)
    connection.close()
"""


def worker(star: Star, fanin: str, rank: int, args: argparse.Namespace, mode: str, more: Sequence[str] = ()) -> list[str]:
    """The command of one worker."""
    successor = star.worker_address((rank + 1) % args.workers)
    place = ["--rank", str(rank), "--world", str(args.workers), "--listen", f"{star.worker_address(rank)}:{PORT}"]
    what = ["--successor", f"{successor}:{PORT}", "--mode", mode, "--sizes", args.size, "--iterations", str(args.iterations)]
    return [*star.inside(rank), fanin, "bench", "stream", *place, *what, "--timeout", "60", "--format", "json", *more]


def collective(star: Star, crew: Crew, args: argparse.Namespace, mode: str, late: str | None = None) -> dict:
    """One run of all workers: the slowest one's times. `late`: rank 1 is so much late in its first run."""
    deadline = time.monotonic() + PATIENCE
    commands = [worker(star, args.fanin, rank, args, mode, ["--late", late] if late and rank == 1 else []) for rank in range(args.workers)]
    running = [crew.start(command) for command in commands]
    rows = [only_row(crew.finish(process, deadline)) for process in running]
    if mode == "flow":
        rows = rows[1:2]
    times = [max(times) for times in zip(*(row["time_s"] for row in rows), strict=True)]
    best = sorted(times)[len(times) // 2]
    size = rows[0]["size_bytes"]
    return {
        "mode": mode,
        "size_bytes": size,
        "times_s": times,
        "goodput_mbit_s": size * 8 / best / 1e6,
        "wrong": sum(row["wrong"] for row in rows),
        "cpu_s_per_gib": sum(row["cpu_s_per_gib"] for row in rows),
    }


def others(star: Star, crew: Crew, args: argparse.Namespace) -> list[bool]:
    """Other connections through the same switch while it sums, by IPv4 and by IPv6: whether each brought what was sent."""
    count = 24
    for rank in (0, 2):
        must(["ip", "-n", star.name(str(rank)), "address", "add", f"fd00::{rank + 1}/64", "dev", INTERFACE, "nodad"])
    data = hashlib.shake_128(b"other").digest(1 << 20)
    expected = hashlib.sha256(data * count).hexdigest()
    receivers = []
    for rank, family, address in ((2, 2, star.worker_address(2)), (0, 10, "fd00::1")):
        sender = 2 - rank
        receivers.append(crew.start([*star.inside(rank), sys.executable, "-c", OTHER, "receive", str(family), address, str(count)]))
        crew.start([*star.inside(sender), sys.executable, "-c", OTHER, "send", str(family), address, str(count)])
    measured = collective(star, crew, args, "transparent")
    if measured["wrong"]:
        raise Failed(f"{measured['wrong']} elements are wrong beside other connections")
    return [crew.finish(process, time.monotonic() + PATIENCE).strip() == expected for process in receivers]


def switch_words(crew: Crew, process: object) -> dict[str, int]:
    """What the switch says at its end that it has done."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", crew.last_words(process))
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text.rsplit("\n", 1)[-1])}


def case(name: str, args: argparse.Namespace) -> list[dict]:
    """The rows of one case."""
    rows = []
    with Star(args.workers, args.rate, joined=False) as star, Crew() as crew:
        if args.congestion:
            for rank in range(args.workers):
                must([*star.inside(rank), "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={args.congestion}"])
        if name == "loss":
            # A frame is what the wire would carry, so that one in a hundred is lost and not one in a hundred of 64 KiB.
            for rank in range(args.workers):
                must(["ip", "-n", star.name(str(rank)), "link", "set", INTERFACE, "gso_max_segs", "1"])
        modes = {"clean": ("flow", "ring", "transparent"), "loss": ("flow", "ring", "transparent"), "late": ("transparent",)}
        for mode in modes.get(name, ("others",)):
            loss = ["--loss", str(args.loss)] if name == "loss" else []
            switch = crew.start([*star.inside("bridge"), args.fanin, "switch", "--transparent", ",".join(star.ports), *loss])
            crew.wait_until_it_says(switch, "joins ", time.monotonic() + PATIENCE)
            if mode == "others":
                passed = others(star, crew, args)
                rows.append({"case": name, "mode": mode, "passed": passed, "wrong": passed.count(False)})
            else:
                rows.append({"case": name, **collective(star, crew, args, mode, LATE if name == "late" else None)})
            switch.terminate()
            switch.wait(5)
            rows[-1]["switch"] = switch_words(crew, switch)
    return rows


def table(rows: Sequence[dict], link_mbit_s: float) -> str:
    """For people."""
    lines = ["| case | who sums | goodput, Mb/s | of one TCP flow | of the link | slowest run, s | wrong |", "|---|---|---|---|---|---|---|"]
    flows = {row["case"]: row["goodput_mbit_s"] for row in rows if row["mode"] == "flow"}
    names = {"flow": "nobody: one flow", "ring": "workers: TCP ring", "transparent": "the switch"}
    for row in rows:
        if row["mode"] == "others":
            continue
        share = row["goodput_mbit_s"] / flows[row["case"]] if row["case"] in flows else None
        cells = [row["case"], names[row["mode"]], f"{row['goodput_mbit_s']:.1f}", f"{share:.2f}" if share else "-"]
        lines.append("| " + " | ".join([*cells, f"{row['goodput_mbit_s'] / link_mbit_s:.3f}", f"{max(row['times_s']):.2f}", str(row["wrong"])]) + " |")
    return "\n".join(lines)


def megabits(rate: str) -> float:
    """A rate as tc writes it, in Mb/s."""
    match = re.fullmatch(r"(\d+)(k|m|g)bit", rate)
    if not match:
        raise argparse.ArgumentTypeError(f"{rate!r} is not a rate as 1gbit or 200mbit")
    return int(match[1]) * {"k": 1e-3, "m": 1.0, "g": 1e3}[match[2]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="target/release/fanin")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--size", default="64MiB")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--loss", type=float, default=0.01, help="share of frames that are lost on their way into the switch, in the case `loss`")
    parser.add_argument("--congestion", help="the workers' congestion control, as cubic or bbr; without it, that of this machine")
    parser.add_argument("--out", help="file for the rows as JSON")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    args = parser.parse_args(arguments)
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}: one of {', '.join(CASES)}")
    if args.workers < 3:
        parser.error(f"argument --workers: {args.workers}, and at least 3 are needed")
    if not 0 <= args.loss < 1:
        parser.error(f"argument --loss: {args.loss}, and a share from 0 to below 1 is expected")
    link = megabits(args.rate)
    if reason := obstacle():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    try:
        rows = [row for name in args.cases or CASES for row in case(name, args)]
    except (Failed, NoNetwork) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(rows, link))
    for row in rows:
        if row["mode"] == "others":
            print(f"other connections while the switch sums, IPv4 and IPv6: {['harmed', 'unharmed'][all(row['passed'])]}")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
