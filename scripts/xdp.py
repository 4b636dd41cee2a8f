#!/usr/bin/env python3
"""Jobs at `fanin switch --xdp`, over links between network namespaces: ranks in namespaces of their own, each by a veth at the switch.

    check   sums of 4 ranks are exact, without and with loss, in the kernel and where a job leaves it
    bench   the program in the kernel and the switch in user space, in turns, on the same links: time of an allreduce, and what of the
            processors a contribution costs

Needs root, iproute2, a program that was built with `--features xdp`, and beside it the example `rank` of the crate fanin-daemon; with
loss also clang. FANIN_PROGRAM names the program. Python's standard library only.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("FANIN_PROGRAM", str(ROOT / "target" / "debug" / "fanin"))
#: Asks for jobs that `fanin bench` does not have: crates/daemon/examples/rank.rs.
RANK = str(Path(PROGRAM).parent / "examples" / "rank")
SUBNET = "10.232"
PORT, HTTP = 7_700, 9_470
TIMEOUT_S = 120
#: linux/sockios.h, linux/ethtool.h.
SIOCETHTOOL, ETHTOOL_SGRO = 0x8946, 0x2C


class Failed(Exception):
    """Something is not as it must be."""


def must(command: Sequence[str]) -> str:
    """Runs a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def receive_in_batches(device: str) -> None:
    """Turns GRO on: a veth takes frames of XDP programs at its other end only if it polls, and so it does."""
    value = array.array("B", struct.pack("II", ETHTOOL_SGRO, 1))
    address, _ = value.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", device.encode(), address))


class Net:
    """A switch's namespace with a veth to each rank's."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.made: list[str] = []

    def name(self, who: str | int) -> str:
        """The namespace of `switch` or a rank's number."""
        return f"fanin-xdp-{os.getpid()}-{who}"

    def inside(self, who: str | int) -> list[str]:
        """What to put before a command so that it runs there."""
        return ["ip", "netns", "exec", self.name(who)]

    @property
    def devices(self) -> str:
        """The switch's devices, for --xdp."""
        return ",".join(f"r{rank}" for rank in range(self.ranks))

    def switch_address(self, rank: int) -> str:
        """The switch's address at a rank's link."""
        return f"{SUBNET}.{rank}.1"

    def __enter__(self) -> Net:
        try:
            for who in ["switch", *range(self.ranks)]:
                must(["ip", "netns", "add", self.name(who)])
                self.made.append(self.name(who))
                must([*self.inside(who), "ip", "link", "set", "lo", "up"])
            for rank in range(self.ranks):
                self._link(rank)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _link(self, rank: int) -> None:
        here, there = self.name("switch"), self.name(rank)
        must(["ip", "link", "add", f"r{rank}", "netns", here, "type", "veth", "peer", "name", "eth0", "netns", there])
        for namespace, device, last in ((here, f"r{rank}", 1), (there, "eth0", 2)):
            must(["ip", "-n", namespace, "address", "add", f"{SUBNET}.{rank}.{last}/24", "dev", device])
            must(["ip", "-n", namespace, "link", "set", device, "up"])
        must([*self.inside(rank), sys.executable, __file__, "gro", "eth0"])

    def __exit__(self, *_what: object) -> None:
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def lose(self, classifier: str) -> None:
        """Lets every link lose packets, in both directions."""
        for rank in range(self.ranks):
            must([*self.inside(rank), "tc", "qdisc", "add", "dev", "eth0", "clsact"])
            for way in ("ingress", "egress"):
                must([*self.inside(rank), "tc", "filter", "add", "dev", "eth0", way, "bpf", "da", "obj", classifier, "sec", "classifier"])


@contextlib.contextmanager
def switch(net: Net, xdp: bool) -> Iterator[subprocess.Popen[str]]:
    """A switch in its namespace, in the kernel or not."""
    command = [PROGRAM, "switch", "--listen", f"0.0.0.0:{PORT}", "--open", "--http", f"127.0.0.1:{HTTP}"]
    more = ["--xdp", net.devices] if xdp else []
    process = subprocess.Popen([*net.inside("switch"), *command, *more], stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or not process.stdout.readline().startswith("ranks join at"):
            raise Failed("the switch does not start")
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=10)


def metrics(net: Net) -> dict[str, float]:
    """All series of the switch."""
    fetch = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{HTTP}/metrics').read().decode())"
    text = must([*net.inside("switch"), sys.executable, "-c", fetch])
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def communicator(switch: str, rank: int, world: int, options: Sequence[str]) -> list[str]:
    """A rank that has a communicator."""
    command = [PROGRAM, "bench", "allreduce", "--rank", str(rank), "--world", str(world), "--transport", "udp", "--format", "json"]
    return [*command, "--switch", switch, "--timeout", "60s", *options]


def plain(switch: str, rank: int, world: int, options: Sequence[str]) -> list[str]:
    """A rank without one; options are the system, bytes, sums of integers, sums of floats before them."""
    system, *numbers = options
    return [RANK, system, switch, str(rank), str(world), *numbers]


def udp_ports(namespace: Sequence[str]) -> list[int]:
    """The ports of all UDP sockets of a namespace."""
    rows = must([*namespace, "cat", "/proc/net/udp"]).splitlines()[1:]
    return sorted({int(row.split()[1].split(":")[1], 16) for row in rows})


def send_fragments(net: Net) -> None:
    """First fragments from all of rank 0's sockets to all of the switch's, which take a job out of the kernel."""
    ports = [",".join(map(str, udp_ports(net.inside(who)))) for who in (0, "switch")]
    must([*net.inside(0), sys.executable, __file__, "fragments", f"{SUBNET}.0.2/{ports[0]}/{net.switch_address(0)}/{ports[1]}"])


def fragments(ways: str) -> None:
    """As :func:`send_fragments`, in the namespace of the rank."""
    source, mine, switch, theirs = ways.split("/")
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for one in mine.split(","):
            for other in theirs.split(","):
                udp = struct.pack("!HHHH", int(one), int(other), 8 + 32, 0) + bytes(8)
                more, lives = 0x2000, 64
                ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, more, lives, socket.IPPROTO_UDP, 0)
                raw.sendto(ip + socket.inet_aton(source) + socket.inet_aton(switch) + udp, (switch, 0))


def run(net: Net, *options: str, fragments: bool = False) -> tuple[list[dict], dict[str, float]]:
    """Ranks of one job; gives rank 0's rows, and the switch's metrics as they were last seen while the job ran.

    With ``fragments`` the job is taken out of the kernel once, when it is there.
    """
    environment = {**os.environ, "FANIN_FALLBACK": "error"}
    command = communicator if options[0].startswith("--") else plain
    ranks = []
    for rank in range(net.ranks):
        arguments = command(f"{net.switch_address(rank)}:{PORT}", rank, net.ranks, options)
        piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        ranks.append(subprocess.Popen([*net.inside(rank), *arguments], **piped, text=True, env=environment))
    seen: dict[str, float] = {}
    end = time.monotonic() + TIMEOUT_S
    while any(process.poll() is None for process in ranks):
        if time.monotonic() > end:
            for process in ranks:
                process.kill()
            raise Failed("ranks do not end")
        with contextlib.suppress(Failed):
            seen.update(metrics(net))
            if fragments and max(of_jobs(series(seen, "fanin_switch_job_in_kernel"), beside=True).values(), default=0) == 1:
                send_fragments(net)
                fragments = False
        # Ranks answer each other until all have said how it went.
        outputs = [process.stdout for process in ranks]
        if len(select.select(outputs, [], [], 0)[0]) == len(ranks):
            for process in ranks:
                if process.stdin:
                    process.stdin.close()
        time.sleep(0.2)
    if any(process.returncode != 0 for process in ranks):
        raise Failed("a rank has failed")
    return json.loads(ranks[0].stdout.read() if ranks[0].stdout else ""), seen


def series(seen: dict[str, float], name: str) -> dict[str, float]:
    """The series of one name."""
    return {key: value for key, value in seen.items() if key.split("{")[0] == name}


def of_jobs(rows: dict[str, float], beside: bool) -> dict[str, float]:
    """Those of jobs beside the communicator's own, where there are any."""
    return {key: value for key, value in rows.items() if not beside or "/allreduce/" in key}


def has_summed(seen: dict[str, float], options: Sequence[str], beside: bool, loss: bool) -> bool:
    """Whether the switch has made sums of contributions."""
    if not {"atp", "a2tp"} & set(options):
        return sum(of_jobs(series(seen, "fanin_switch_rank_completed_sums_total"), beside).values()) > 0
    # The server makes the last sum. Rank 0 has it, and gets what the others have contributed: one sum, or else three vectors; and all get the result.
    sent = of_jobs(series(seen, "fanin_switch_rank_sent_payload_bytes_total"), beside)
    by_rank = {rank: sum(value for key, value in sent.items() if f'rank="{rank}"' in key) for rank in range(4)}
    return by_rank[0] < (3.5 if loss else 2.5) * by_rank[1]


#: How the names of checks begin in which a job leaves the kernel, and comes back.
LEFT = "out of the kernel and back"


def check() -> None:
    """Sums are exact."""
    for what, loss, options in (
        ("integers", False, ["--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        ("smallest integers", False, ["--dtype", "i16", "--op", "min", "--sizes", "1MiB", "--iterations", "20"]),
        ("largest floats", False, ["--dtype", "f32", "--op", "maximum", "--sizes", "1MiB", "--iterations", "20"]),
        ("integers on a tree", False, ["--system", "tree", "--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        ("integers in Canary", False, ["--system", "canary", "--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        ("bits in Canary", False, ["--system", "canary", "--dtype", "u8", "--op", "xor", "--sizes", "1KiB,1MiB", "--iterations", "20"]),
        (f"{LEFT}, Canary", False, ["--system", "canary", "--dtype", "i32", "--sizes", "256KiB", "--iterations", "2000"]),
        ("integers by ATP", False, ["--system", "atp", "--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        ("bits by A2TP", False, ["--system", "a2tp", "--dtype", "u8", "--op", "xor", "--sizes", "1KiB,1MiB", "--iterations", "20"]),
        (f"{LEFT}, ATP", False, ["--system", "atp", "--dtype", "i32", "--sizes", "256KiB", "--iterations", "2000"]),
        ("integers in Canary, with collisions", False, ["canary-collides", str(1 << 20), "20", "0"]),
        ("floats, and then integers", False, ["switchml", str(1 << 18), "400", "20"]),
        ("floats as block fixed point", False, ["--fixed-point", "--sizes", "1MiB", "--iterations", "20"]),
        ("floats, which leave the kernel", False, ["--sizes", "4KiB,1MiB", "--iterations", "20"]),
        ("integers, with loss", True, ["--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        ("floats as block fixed point, with loss", True, ["--fixed-point", "--sizes", "1MiB", "--iterations", "20"]),
        ("integers on a tree, with loss", True, ["--system", "tree", "--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        ("integers in Canary, with loss", True, ["--system", "canary", "--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        (f"{LEFT}, Canary, with loss", True, ["--system", "canary", "--dtype", "i32", "--sizes", "64KiB", "--iterations", "300"]),
        ("integers by ATP, with loss", True, ["--system", "atp", "--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"]),
        (f"{LEFT}, A2TP, with loss", True, ["--system", "a2tp", "--dtype", "i32", "--sizes", "64KiB", "--iterations", "300"]),
        ("integers in Canary, with collisions and loss", True, ["canary-collides", str(1 << 20), "20", "0"]),
        ("floats, and then integers, with loss", True, ["switchml", str(1 << 18), "100", "4"]),
        ("floats, with loss", True, ["--sizes", "4KiB,1MiB", "--iterations", "20"]),
    ):
        with tempfile.TemporaryDirectory() as folder, Net(4) as net:
            if loss:
                net.lose(compiled("loss", folder))
            with switch(net, xdp=True):
                rows, seen = run(net, *options, fragments=what.startswith(LEFT))
            wrong = sum(row["wrong"] for row in rows)
            # The communicator's own job is beside those that reduce.
            beside = "--system" in options
            here = max(of_jobs(series(seen, "fanin_switch_job_in_kernel"), beside).values(), default=None)
            passed = of_jobs(series(seen, "fanin_switch_job_passed_up_frames_total"), beside)
            up = {key.split('reason="')[1].split('"')[0]: int(value) for key, value in passed.items()}
            again = sum(series(seen, "fanin_switch_retransmitted_packets_total").values())
            times = ", ".join(f"{row['size_bytes']} B {row['time_us']:.0f} us" for row in rows)
            print(f"{what}: {wrong} wrong, {times}; seen in the kernel: {here}, up: {up}, sent again: {again:.0f}", flush=True)
            if not has_summed(seen, options, beside, loss):
                raise Failed(f"{what}: no rank was the last to contribute to a sum")
            if wrong or here is None:
                raise Failed(f"{what}: {wrong} elements are wrong, in the kernel: {here}")
            # It has left the kernel for the floats, and is back there at the end.
            if "and then" in what and (here != 1 or not up["operator"]):
                raise Failed(f"{what}: in the kernel: {here}, gone up: {up}")
            if what.startswith(LEFT) and (here != 1 or not up["fragment"]):
                raise Failed(f"{what}: in the kernel: {here}, gone up: {up}")


def compiled(name: str, folder: str) -> str:
    """One of the small programs beside the switch's."""
    out = f"{folder}/{name}.o"
    headers = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    must(["clang", "-O2", "-g", "-target", "bpf", headers, "-c", str(ROOT / "dataplanes" / "xdp" / f"{name}.bpf.c"), "-o", out])
    return out


#: Who sums, and whether a program that lets all pass is at the entrance of the devices.
CONTENDERS = {"user space": (False, False), "user space, behind a program": (False, True), "kernel": (True, False)}


#: Jobs of a measurement, by name.
CASES = {
    "4 KiB": ["--dtype", "i32", "--sizes", "4KiB", "--iterations", "1000"],
    "1 MiB": ["--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"],
    "1 MiB, tree": ["tree", str(1 << 20), "20", "0"],
    "4 KiB, canary": ["canary", str(4 << 10), "500", "0"],
    "1 MiB, canary": ["canary", str(1 << 20), "20", "0"],
    "4 KiB, atp": ["--system", "atp", "--dtype", "i32", "--sizes", "4KiB", "--iterations", "500"],
    "1 MiB, atp": ["--system", "atp", "--dtype", "i32", "--sizes", "1MiB", "--iterations", "20"],
}


def bench(rounds: int, ranks: int, loss: bool, chosen: Sequence[str]) -> None:
    """All contenders in turns."""
    cases = [(name, options) for name, options in CASES.items() if not chosen or name in chosen]
    os.environ["FANIN_PAYLOAD"] = "1408"
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder, Net(ranks) as net:
        passing = compiled("pass", folder)
        if loss:
            net.lose(compiled("loss", folder))
        for _ in range(rounds):
            for name, options in cases:
                for who, (xdp, behind) in CONTENDERS.items():
                    for device in net.devices.split(",") if behind else []:
                        must(["ip", "-n", net.name("switch"), "link", "set", "dev", device, "xdp", "obj", passing, "sec", "xdp"])
                    with switch(net, xdp):
                        # The kernel verifies the program while it is loaded, which is no part of a job.
                        before = metrics(net)["process_cpu_seconds_total"]
                        rows, _ = run(net, *options)
                        seen = metrics(net)
                    for device in net.devices.split(",") if behind else []:
                        must(["ip", "-n", net.name("switch"), "link", "set", "dev", device, "xdp", "off"])
                    row = rows[0]
                    if row["wrong"]:
                        raise Failed("a sum is wrong")
                    packets = row["iterations"] * -(-row["size_bytes"] // 1408) * ranks
                    ranks_cpu = row["cpu_s_per_gib"] * row["size_bytes"] / 2**30 * row["iterations"]
                    again = sum(series(seen, "fanin_switch_retransmitted_packets_total").values())
                    cpu = seen["process_cpu_seconds_total"] - before
                    values = (row["time_us"], ranks_cpu / packets * 1e6, cpu / packets * 1e6, again / packets * 100)
                    found.setdefault((name, who), []).append(values)
    print(f"{ranks} ranks, {rounds} rounds, medians; processor time in us a contribution:")
    print("of ranks, with what the kernel does in their time, and of the switch's process")
    for (name, who), runs in found.items():
        time_us, ranks_cpu, cpu, again = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"{name} {who:29}: {time_us:9.0f} us a call; ranks {ranks_cpu:6.2f}, switch {cpu:6.2f}; {again:.2f} % sent again")


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "bench", "gro", "fragments"])
    parser.add_argument("device", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--loss", action="store_true", help="bench: 2 %% of packets are lost in each direction")
    parser.add_argument("--case", action="append", default=[], choices=list(CASES), help="bench: this one; all if it is not given")
    args = parser.parse_args()
    try:
        if args.what == "gro":
            receive_in_batches(args.device)
        elif args.what == "fragments":
            fragments(args.device)
        elif args.what == "check":
            check()
        else:
            bench(args.rounds, args.ranks, args.loss, args.case)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
