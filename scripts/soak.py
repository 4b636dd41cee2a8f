#!/usr/bin/env python3
"""A switch among bad neighbours, for as long as is asked: strangers join and leave, connect and say nothing, send nonsense to all of its ports,
each at a stated rate, and the switch is stopped now and then, while a job of four ranks checks every element that it gets.

Usage: soak.py [--fanin PROGRAM] [--minutes 60] [--joins 20] [--connections 20] [--frames 20] [--datagrams 2000] [--idle 200] [--stop-every 60]

Prints a line every ten seconds and a verdict as JSON. Fails (exit 1) where a run of the job was wrong or ended early, or where memory, threads,
descriptors or the log have grown and did not come back. No root. Python's standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from processes import Crew, Failed

ROOT = Path(__file__).resolve().parent.parent
HERE = "127.0.0.1"
RANKS = 4
#: How long strangers have been gone before what they have left behind is looked for: longer than a switch waits for a client's next word.
SETTLE_S = 40.0
#: What may have grown when they are gone, and what a minute of them may add to the log.
GROWN_KIB_MAX, LOG_BYTES_PER_MINUTE_MAX = 16 << 10, 64 << 10
#: How long the switch is stopped: less than the job's timeout.
STOP_S, TIMEOUT_S = 3.0, 30


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody has, of TCP and UDP."""
    while True:
        first = random.randrange(20_000, 30_000)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                        stack.enter_context(socket.socket(socket.AF_INET, kind)).bind((HERE, port))
            except OSError:
                continue
            return first


def framed(message: bytes) -> bytes:
    """As the control protocol has it."""
    return struct.pack("<I", len(message)) + message


def read_frame(connection: socket.socket) -> bytes:
    """The next message of a control connection."""

    def exactly(count: int) -> bytes:
        read = b""
        while len(read) < count:
            more = connection.recv(count - len(read))
            if not more:
                raise Failed("a control connection was closed in the middle of a message")
            read += more
        return read

    return exactly(struct.unpack("<I", exactly(4))[0])


def words_of_a_rank(fanin: str) -> tuple[bytes, dict]:
    """What a rank says to a switch first, and its wish to join, as the program itself says it."""
    with socket.create_server((HERE, 0)) as listener, Crew() as crew:
        listener.settimeout(30)
        address = f"{HERE}:{listener.getsockname()[1]}"
        crew.start([fanin, "bench", "allreduce", "--rank", "1", "--world", "3", "--switch", address, "--sizes", "4KiB", "--transport", "udp"])
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            hello = read_frame(connection)
            told = json.loads(hello)["hello"]
            connection.sendall(framed(json.dumps({"hello": told | {"switch_instance": 1}}).encode()))
            return hello, json.loads(read_frame(connection))


class Strangers:
    """Threads that each do one thing to the switch, so many times a second."""

    def __init__(self, control: int, http: int, data: int, ports: int, words: tuple[bytes, dict]) -> None:
        self.control, self.http, self.data, self.ports, self.words = control, http, data, ports, words
        self.over = threading.Event()
        self.done: dict[str, int] = {}
        self._threads: list[threading.Thread] = []
        self._idle: list[socket.socket] = []

    def at_a_rate(self, name: str, rate: float, act: Callable[[random.Random], None]) -> None:
        """Does `act` so many times a second, in bursts of a fiftieth of a second where that is often."""
        if rate <= 0:
            return
        self.done[name] = 0

        def go_on() -> None:
            dice, begin = random.Random(name), time.monotonic()
            while not self.over.wait(max(0.02, 1 / rate)):
                for _ in range(int((time.monotonic() - begin) * rate) - self.done[name]):
                    with contextlib.suppress(OSError, Failed):
                        act(dice)
                    self.done[name] += 1

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        self._threads.append(thread)

    def connect(self, port: int) -> socket.socket:
        return socket.create_connection((HERE, port), 2)

    def join_and_leave(self, dice: random.Random) -> None:
        """Rank 1 of 3 of a job whose others never come; large wishes and small ones."""
        hello, join = self.words
        wish = dict(join["join"], job=f"stranger-{dice.randrange(1 << 30)}", rank=dice.randrange(3))
        wish["wish"] = dict(wish["wish"], window=dice.choice([None, 1, 512, 65_536]))
        with self.connect(self.control) as connection:
            connection.sendall(framed(hello) + framed(json.dumps({"join": wish}).encode()))
            if dice.random() < 0.5:
                connection.settimeout(0.05)
                connection.recv(4_096)

    def connect_and_leave(self, dice: random.Random) -> None:
        with self.connect(dice.choice([self.control, self.http])):
            pass

    def say_nonsense(self, dice: random.Random) -> None:
        hello, _ = self.words
        words = [
            struct.pack("<I", 0xFFFF_FFFF),
            framed(b"[" * dice.randrange(1, 60_000)),
            framed(dice.randbytes(dice.randrange(4_000))),
            framed(hello)[: dice.randrange(1, len(hello))],
            framed(hello) * 3,
            b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * dice.randrange(2_000),
        ]
        with self.connect(dice.choice([self.control, self.http])) as connection:
            connection.sendall(dice.choice(words))

    def send_datagram(self, dice: random.Random) -> None:
        self._socket().sendto(dice.randbytes(dice.randrange(1, 1_400)), (HERE, self.data + dice.randrange(self.ports)))

    def _socket(self) -> socket.socket:
        if not hasattr(self, "_datagrams"):
            self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return self._datagrams

    def stay_idle(self, count: int) -> None:
        """Keeps so many connections open that say nothing, and opens others where the switch closes them."""

        def keep(_: random.Random) -> None:
            self._idle = [one for one in self._idle if not is_closed(one)]
            while len(self._idle) < count and not self.over.is_set():
                self._idle.append(self.connect(self.control))

        self.at_a_rate("rounds of idle connections", 1 if count else 0, keep)

    def end(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(30)
        for connection in self._idle:
            connection.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it; closes it then."""
    try:
        if connection.recv(4_096, socket.MSG_DONTWAIT) == b"":
            connection.close()
            return True
    except BlockingIOError:
        pass
    except OSError:
        connection.close()
        return True
    return False


class Watched:
    """A switch, what it takes, and what it writes."""

    def __init__(self, crew: Crew, fanin: str, folder: Path) -> None:
        self.ports = 16
        self.control = free_ports(self.ports + 2)
        self.http, self.data = self.control + 1, self.control + 2
        ports = f"{self.data}-{self.data + self.ports - 1}"
        self.log = folder / "switch.log"
        command = [fanin, "switch", "--listen", f"{HERE}:{self.control}", "--http", f"{HERE}:{self.http}", "--data-ports", ports]
        self.process = crew.start(["sh", "-c", 'exec "$@" 2>"$0"', str(self.log), *command])
        crew.wait_until_it_says(self.process, "ranks join at", time.monotonic() + 30)

    def sample(self) -> dict[str, float]:
        """What the process takes now, and how long its metrics take."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        # Before the connection by which the metrics are read, which the switch closes when it gets to it.
        descriptors = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        begin = time.monotonic()
        with urllib.request.urlopen(f"http://{HERE}:{self.http}/metrics", timeout=10) as answer:
            answer.read()
        return {
            "resident_kib": int(status["VmRSS"].split()[0]),
            "threads": int(status["Threads"]),
            "descriptors": descriptors,
            "metrics_ms": (time.monotonic() - begin) * 1e3,
            "log_bytes": self.log.stat().st_size,
        }


def work(crew: Crew, fanin: str, switch: Watched, over: threading.Event, runs: list[float], wrong: list[str]) -> None:
    """One run of the checked job after the other."""
    command = [fanin, "bench", "allreduce", "--workers", str(RANKS), "--switch", f"{HERE}:{switch.control}", "--transport", "udp"]
    while not over.is_set():
        begin = time.monotonic()
        job = crew.start([*command, "--sizes", "4KiB,1MiB", "--iterations", "50", "--format", "json"], {"FANIN_TIMEOUT": str(TIMEOUT_S)})
        try:
            rows = json.loads(crew.finish(job, begin + 300).strip().splitlines()[-1])
            if any(row["wrong"] for row in rows):
                wrong.append(f"wrong elements: {rows}")
            runs.append(time.monotonic() - begin)
        except (Failed, ValueError, KeyError) as error:
            wrong.append(str(error))


def stop_now_and_then(switch: Watched, every: float, over: threading.Event, stops: list[float]) -> None:
    """Stops the switch for a while, as a debugger or a machine that is moved does."""
    while not over.wait(every):
        switch.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        over.wait(STOP_S)
        switch.process.send_signal(signal.SIGCONT)
        stops.append(time.monotonic() - stopped)


def soak(options: argparse.Namespace, folder: Path) -> dict:
    """Everything; returns the verdict."""
    words = words_of_a_rank(options.fanin)
    runs: list[float] = []
    wrong: list[str] = []
    stops: list[float] = []
    samples: list[dict[str, float]] = []
    with Crew() as crew:
        switch = Watched(crew, options.fanin, folder)
        over = threading.Event()
        worker = threading.Thread(target=work, args=(crew, options.fanin, switch, over, runs, wrong), daemon=True)
        worker.start()
        while not runs and not wrong:
            time.sleep(0.1)
        before = switch.sample()
        strangers = Strangers(switch.control, switch.http, switch.data, switch.ports, words)
        strangers.at_a_rate("joins", options.joins, strangers.join_and_leave)
        strangers.at_a_rate("connections", options.connections, strangers.connect_and_leave)
        strangers.at_a_rate("nonsense", options.frames, strangers.say_nonsense)
        strangers.at_a_rate("datagrams", options.datagrams, strangers.send_datagram)
        strangers.stay_idle(options.idle)
        if options.stop_every > 0:
            threading.Thread(target=stop_now_and_then, args=(switch, options.stop_every, over, stops), daemon=True).start()
        end = time.monotonic() + 60 * options.minutes
        while time.monotonic() < end and switch.process.poll() is None:
            time.sleep(10)
            with contextlib.suppress(OSError):
                samples.append(switch.sample())
                print({key: round(value, 1) for key, value in samples[-1].items()}, f"runs {len(runs)} wrong {len(wrong)}", flush=True)
        strangers.end()
        over.set()
        worker.join(300)
        time.sleep(SETTLE_S)
        after = switch.sample() if switch.process.poll() is None else {}
    return verdict(options, before, samples, after, strangers.done, runs, wrong, stops)


def verdict(options: argparse.Namespace, before: dict, samples: list[dict], after: dict, done: dict, runs: list, wrong: list, stops: list) -> dict:
    """What came out, and what of it is a fault."""
    faults = list(wrong[:5])
    if not after:
        faults.append("the switch has ended")
    else:
        if after["resident_kib"] > before["resident_kib"] + GROWN_KIB_MAX:
            faults.append(f"memory has grown: {before['resident_kib']} to {after['resident_kib']} KiB")
        faults.extend(
            f"{what} are left: {before[what]} before, {after[what]} after" for what in ("threads", "descriptors") if after[what] > before[what]
        )
        grown = after["log_bytes"] - before["log_bytes"]
        if grown > LOG_BYTES_PER_MINUTE_MAX * max(1.0, options.minutes):
            faults.append(f"the log has grown by {grown} bytes in {options.minutes} minutes")
    half = len(samples) // 2
    most = {key: max((sample[key] for sample in samples), default=0) for key in before}
    return {
        "minutes": options.minutes,
        "done": done,
        "stops": len(stops),
        "runs": len(runs),
        "run_s": [round(min(runs), 2), round(max(runs), 2)] if runs else [],
        "before": before,
        "most": most,
        "most_in_the_first_half_kib": max((sample["resident_kib"] for sample in samples[:half]), default=0),
        "most_in_the_second_half_kib": max((sample["resident_kib"] for sample in samples[half:]), default=0),
        "after": after,
        "faults": faults,
    }


def main() -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fanin", default=str(ROOT / "target/release/fanin"), help="the program (target/release/fanin)")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--joins", type=float, default=20.0, help="joins of jobs that never begin, a second")
    parser.add_argument("--connections", type=float, default=20.0, help="connections that are closed at once, a second")
    parser.add_argument("--frames", type=float, default=20.0, help="connections with nonsense, a second")
    parser.add_argument("--datagrams", type=float, default=2_000.0, help="datagrams of random bytes, a second")
    parser.add_argument("--idle", type=int, default=200, help="connections that say nothing, at any time")
    parser.add_argument("--stop-every", type=float, default=60.0, help=f"seconds between stops of the switch for {STOP_S:.0f} s; 0: none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = soak(options, Path(folder))
    print(json.dumps(result))
    for fault in result["faults"]:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
