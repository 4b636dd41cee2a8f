#!/usr/bin/env python3
"""Does to `fanin switch --transparent` what networks and their users do: damages frames, takes interfaces away, gives two jobs one ring
number, kills workers, joins two switches, puts workers into two racks, leaves too little memory; and says whether sums stayed exact and errors
came by name, in time.

Usage: transparent_faults.py [--fanin PROGRAM] [CASE ...]

Cases: damage, ports, jobs, rings, killed, memory, two-switches, racks, racks-loss, ipv6, pages. Needs root. Exits with 1 where
something is otherwise than it has to be. Python's standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from namespaces import INTERFACE, NoNetwork, Star, must, obstacle
from processes import Crew, Failed

PORT = 7_700
PATIENCE = 60.0
#: Without shaping worth the name: what is looked at is not speed.
RATE = "1gbit"

#: Relays frames between two interfaces; turns one bit over in every so many-th frame of the first that carries data of TCP.
RELAY = """
import select, signal, socket, sys
a, b, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
sockets = []
for name in (a, b):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    port.bind((name, 0))
    port.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
    port.setblocking(False)
    sockets.append(port)
data = damaged = 0
def end(*_):
    print(damaged, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("relays", flush=True)
while True:
    for port in select.select(sockets, [], [])[0]:
        for _ in range(64):
            try:
                frame, address = port.recvfrom(70_000)
            except BlockingIOError:
                break
            if address[2] == socket.PACKET_OUTGOING:
                continue
            if port is sockets[0] and len(frame) > 600 and frame[12:14] == b"\\x08\\x00" and frame[23] == 6:
                data += 1
                if data % every == 0:
                    frame = bytearray(frame)
                    frame[34 + data * 7 % (len(frame) - 34)] ^= 1 << data % 8
                    damaged += 1
            try:
                sockets[1 - sockets.index(port)].send(frame)
            except OSError:
                pass
"""

#: Turns an interface's offloads off, so that checksums are complete: its own way where there is no ethtool.
OFFLOADS = (0x15, 0x17, 0x19, 0x1F, 0x24, 0x2C)


def offloads_off(interface: str) -> None:
    """Of an interface of this process' namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, 0x8946, request)


class Lab:
    """Workers around switches, and what they say."""

    def __init__(self, star: Star, crew: Crew, fanin: str) -> None:
        self.star, self.crew, self.fanin = star, crew, fanin

    def switch(self, *more: str, where: str = "bridge", ports: Sequence[str] = ()) -> subprocess.Popen:
        """A switch that takes frames."""
        command = [*self.star.inside(where), self.fanin, "switch", "--transparent", ",".join(ports or self.star.ports), *more]
        switch = self.crew.start(command)
        self.crew.wait_until_it_says(switch, "joins ", time.monotonic() + PATIENCE)
        return switch

    def worker(
        self, rank: int, hosts: Sequence[int], *more: str, port: int = PORT, address: Callable[[int], str] | None = None
    ) -> subprocess.Popen:
        """One of a job whose ranks are on these hosts."""
        address = address or self.star.worker_address
        place = ["--rank", str(rank), "--world", str(len(hosts)), "--listen", f"{address(hosts[rank])}:{port}"]
        place += ["--successor", f"{address(hosts[(rank + 1) % len(hosts)])}:{port}", "--format", "json"]
        return self.crew.start([*self.star.inside(hosts[rank]), self.fanin, "bench", "stream", *place, *more])

    def job(self, hosts: Sequence[int], *more: str, **where: object) -> list[subprocess.Popen]:
        """All workers of one."""
        return [self.worker(rank, hosts, *more, **where) for rank in range(len(hosts))]

    def said(self, process: subprocess.Popen) -> str:
        """All that a process has said so far."""
        texts = []
        for file in self.crew._files[process.pid]:
            texts.append(os.pread(file.fileno(), 1 << 22, 0).decode(errors="replace"))
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(texts))

    def wait_until(self, process: subprocess.Popen, words: str) -> None:
        """Until a process has said that."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.said(process):
            if time.monotonic() >= deadline:
                raise Failed(f"{words!r} was not said: {self.said(process)[-2_000:]}")
            time.sleep(0.05)

    def ended(self, process: subprocess.Popen) -> str:
        """What a switch says at its end."""
        process.terminate()
        process.wait(10)
        return self.said(process)

    def exact(self, job: Sequence[subprocess.Popen]) -> None:
        """All workers end well, with the right sums."""
        deadline = time.monotonic() + PATIENCE
        for process in job:
            rows = json.loads(self.crew.finish(process, deadline))
            expect(all(row["wrong"] == 0 for row in rows), "a sum is wrong")

    def errors(self, job: Sequence[subprocess.Popen]) -> list[str]:
        """All workers end with errors, which they say."""
        said = []
        deadline = time.monotonic() + PATIENCE
        for process in job:
            try:
                code = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise Failed("a worker waits for ever") from error
            expect(code == 1, f"a worker has ended with {code}: {self.said(process)}")
            said.append(self.said(process).strip())
        return said


def expect(holds: bool, otherwise: str) -> None:
    """What has to hold."""
    if not holds:
        raise Failed(otherwise)


def number(text: str, name: str) -> int:
    """A count of the switch's last words."""
    found = re.findall(rf"\b{name}=(\d+)", text)
    expect(bool(found), f"no {name} in {text[-500:]}")
    return int(found[-1])


def damage(lab: Lab) -> str:
    """One in 50 data frames of a worker is damaged on its way, anywhere behind the Ethernet header."""
    star = lab.star
    bridge, host = star.name("bridge"), star.name("0")
    must(["ip", "-n", bridge, "link", "del", "p0"])
    wire = star._namespace("wire")
    must(["ip", "-n", wire, "link", "add", "wa", "type", "veth", "peer", "name", INTERFACE, "netns", host])
    must(["ip", "-n", wire, "link", "add", "wb", "type", "veth", "peer", "name", "p0", "netns", bridge])
    must(["ip", "-n", host, "address", "add", f"{star.worker_address(0)}/24", "dev", INTERFACE])
    for namespace, interface in ((wire, "wa"), (wire, "wb"), (bridge, "p0"), (host, INTERFACE)):
        must(["ip", "-n", namespace, "link", "set", interface, "up"])
        must(["ip", "netns", "exec", namespace, sys.executable, __file__, "--offloads-off", interface])
    relay = lab.crew.start([*star.inside("wire"), sys.executable, "-c", RELAY, "wa", "wb", "50"])
    lab.crew.wait_until_it_says(relay, "relays", time.monotonic() + PATIENCE)
    switch = lab.switch()
    lab.exact(lab.job(range(star.workers), "--sizes", "1MiB", "--iterations", "3", "--timeout", "40"))
    words = lab.ended(switch)
    relay.terminate()
    relay.wait(10)
    made, found = int(lab.said(relay).split()[-1]), number(words, "damaged")
    expect("a damaged frame is dropped" in words, "the switch has not said that frames were damaged")
    # Where an address or a port is hit, the frame is nobody's, and passes with its wrong checksum.
    expect(made > 10 and found * 2 >= made and found <= made, f"{made} frames were damaged, and {found} were noticed")
    return f"{made} frames damaged, {found} noticed by the switch, all sums exact"


def ports(lab: Lab) -> str:
    """Interfaces go and come back, of hosts that are in a ring and of others."""
    star = lab.star
    bridge = star.name("bridge")
    switch = lab.switch()
    running = lab.job((0, 1, 2), "--sizes", "256KiB", "--iterations", "150", "--timeout", "30")
    lab.wait_until(switch, "a ring begins")
    # A container that is in no ring is removed.
    must(["ip", "netns", "del", star.name("3")])
    lab.exact(running)
    lab.wait_until(switch, 'out of service until there is one of that name again and it is up interface="p3"')
    # The interface of one that is in a ring.
    broken = lab.job((0, 1, 2), "--sizes", "256KiB", "--iterations", "100000", "--timeout", "30")
    time.sleep(1.5)
    start = time.monotonic()
    must(["ip", "-n", bridge, "link", "set", "p1", "down"])
    errors = lab.errors([broken[0], broken[2]])
    took = time.monotonic() - start
    expect(all("interface p1, behind which rank 1 at " in error for error in errors) and took < 15, f"after {took:.1f} s: {errors}")
    # Nobody can tell the one that is cut off.
    broken[1].kill()
    # It comes back as another one of the same name, and so does the container.
    must(["ip", "-n", bridge, "link", "del", "p1"])
    for host in (1, 3):
        name = star.name(str(host))
        if host == 3:
            must(["ip", "netns", "add", name])
            must(["ip", "-n", name, "link", "set", "lo", "up"])
        must(["ip", "-n", bridge, "link", "add", f"p{host}", "type", "veth", "peer", "name", INTERFACE, "netns", name])
        must(["ip", "-n", bridge, "link", "set", f"p{host}", "up"])
        must(["ip", "-n", name, "address", "add", f"{star.worker_address(host)}/24", "dev", INTERFACE])
        must(["ip", "-n", name, "link", "set", INTERFACE, "up"])
    lab.wait_until(switch, 'in service again interface="p1"')
    lab.wait_until(switch, 'in service again interface="p3"')
    lab.exact(lab.job((0, 1, 2, 3), "--sizes", "256KiB", "--timeout", "30"))
    expect(switch.poll() is None, "the switch has ended")
    return f"workers had an error by name after {took:.1f} s; other rings, and those after it, were exact"


def jobs(lab: Lab) -> str:
    """Two jobs of two users who gave no ring number, and then of two who gave the same."""
    switch = lab.switch()
    size = ("--sizes", "64KiB", "--timeout", "20")
    one, two = lab.job((0, 1, 2, 3), *size), lab.job((0, 1, 2, 3), *size, port=PORT + 1)
    lab.exact([*one, *two])
    running = lab.job((0, 1), *size, "--iterations", "2000", "--ring", "77", port=PORT + 2)
    lab.wait_until(switch, "a ring begins ring=77")
    errors = lab.errors(lab.job((2, 3), *size, "--ring", "77", port=PORT + 3))
    expect(any("two jobs have the same ring number" in error for error in errors), f"{errors}")
    lab.exact(running)
    refused = next(error for error in errors if "two jobs" in error)
    return f"both were exact; of two with one number the later one was refused: {refused}"


def rings(lab: Lab) -> str:
    """Four rings over the same hosts and cards at once, as of four GPUs of a machine (parallel NetReduce), and two jobs of others beside them."""
    switch = lab.switch()
    size = ("--sizes", "1MiB", "--iterations", "5", "--timeout", "40")
    running = [lab.job((0, 1, 2, 3), *size, "--ring", str(100 + ring), port=PORT + ring) for ring in range(4)]
    running.append(lab.job((3, 1, 0, 2), *size, port=PORT + 10))
    running.append(lab.job((0, 2, 3), *size, port=PORT + 11))
    for job in running:
        lab.exact(job)
    words = lab.ended(switch)
    expect((number(words, "rings"), number(words, "rings_failed"), number(words, "refused")) == (6, 0, 0), words[-500:])
    return "four rings of one job and two jobs of others over the same cards were exact at once"


def killed(lab: Lab) -> str:
    """Each rank is killed, more than once and at different times."""
    switch = lab.switch()
    hosts = (0, 1, 2, 3)
    wrong, untold, neighbours, runs = [], [], 0, 0
    for delay in (0.3, 0.9, 1.4):
        for rank in hosts:
            begun = lab.said(switch).count("a ring begins")
            job = lab.job(hosts, "--sizes", "1MiB", "--iterations", "100000", "--timeout", "30", port=PORT + runs)
            runs += 1
            while lab.said(switch).count("a ring begins") == begun:
                time.sleep(0.02)
            time.sleep(delay)
            before = len(lab.said(switch))
            # `ip netns exec` becomes the command that it starts.
            job[rank].kill()
            start = time.monotonic()
            errors = lab.errors([worker for index, worker in enumerate(job) if index != rank])
            waited = time.monotonic() - start
            expect(waited < 10, f"rank {rank} killed after {delay} s: workers have waited for {waited:.1f} s: {errors}; {lab.said(switch)[before:]}")
            said = re.findall(r"rank (\d+) at \S+ has ended, and others wait", lab.said(switch)[before:])
            if said != [str(rank)]:
                wrong.append((rank, said))
            address = f"{lab.star.worker_address(rank)}:"
            untold += [(rank, error) for error in errors if f"rank {rank} at " not in error and address not in error]
            neighbours += sum(f"rank {rank} at " not in error for error in errors)
    expect(not wrong, f"killed, and said by the log: {wrong}")
    # Where a rank dies between two messages, its neighbour may end at that before the switch knows that anybody would have gone on; the one
    # before that neighbour then knows no more than that both of its connections are gone, and says so.
    expect(len(untold) <= 3, f"killed, and errors that name neither the rank nor its address: {untold}")
    told, address_only = 3 * runs - neighbours, neighbours - len(untold)
    return f"{runs} of {runs} named by the log; of {3 * runs} others {told} were told the rank, {address_only} saw its address, {len(untold)} neither"


def memory(lab: Lab) -> str:
    """Less memory than a window of TCP."""
    times = []
    for size in ("64KiB", "256KiB", "16MiB"):
        switch = lab.switch("--stream-memory", size)
        start = time.monotonic()
        lab.exact(lab.job(range(lab.star.workers), "--sizes", "4MiB", "--iterations", "3", "--timeout", "20"))
        times.append(f"{size} {time.monotonic() - start:.1f} s")
        words = lab.ended(switch)
        expect(number(words, "dropped") < 10, f"{size}: {number(words, 'dropped')} segments were dropped")
    return "exact with " + ", ".join(times)


def second_rack(lab: Lab) -> None:
    """Another switch's namespace, with workers 2 and 3 and a cable to the first one's."""
    bridge, other = lab.star.name("bridge"), lab.star._namespace("bridge2")
    must(["ip", "-n", bridge, "link", "add", "trunk", "type", "veth", "peer", "name", "trunk", "netns", other])
    for namespace in (bridge, other):
        must(["ip", "-n", namespace, "link", "set", "trunk", "up"])
    for port in ("p2", "p3"):
        must(["ip", "-n", bridge, "link", "set", port, "netns", other])
        must(["ip", "-n", other, "link", "set", port, "up"])


def two_switches(lab: Lab) -> str:
    """Two in a row: where one sees all connections it sums; where none does, both say so."""
    second_rack(lab)
    switches = [lab.switch(ports=("p0", "p1", "trunk")), lab.switch(where="bridge2", ports=("p2", "p3", "trunk"))]
    lab.exact(lab.job((0, 1, 2), "--sizes", "256KiB", "--timeout", "30"))
    start = time.monotonic()
    errors = lab.errors(lab.job((0, 1, 2, 3), "--sizes", "256KiB", "--timeout", "30"))
    took = time.monotonic() - start
    words = "passes only another transparent switch, behind trunk"
    expect(took < 20 and any(words in error for error in errors), f"after {took:.1f} s: {errors}")
    expect(any(words in lab.said(switch) for switch in switches), "no log has the reason")
    return f"a ring that passes one of them is exact; another one has an error by name after {took:.1f} s"


def two_racks(lab: Lab, *more: str) -> tuple[subprocess.Popen, subprocess.Popen]:
    """The switch above, and the one below."""
    above = lab.switch(*more, ports=("p0", "p1", "trunk"))
    below = lab.switch(*more, "--uplink", "trunk", where="bridge2", ports=("p2", "p3", "trunk"))
    for switch in (above, below):
        lab.wait_until(switch, "another transparent switch sums together with this one")
    return above, below


def over_the_trunk(lab: Lab) -> tuple[int, int]:
    """Bytes that have come up and gone down so far."""
    folder = "/sys/class/net/trunk/statistics"
    said = must([*lab.star.inside("bridge"), "cat", f"{folder}/rx_bytes", f"{folder}/tx_bytes"]).split()
    return int(said[0]), int(said[1])


def racks(lab: Lab) -> str:
    """Two racks: a ring of which every connection crosses the uplink, several rings and jobs at once, a dead worker, a switch that is restarted."""
    second_rack(lab)
    above, below = two_racks(lab)
    mib, times = 8, 3
    before = over_the_trunk(lab)
    lab.exact(lab.job((0, 2, 1, 3), "--sizes", f"{mib}MiB", "--iterations", str(times), "--timeout", "40"))
    crossed = [after - before for after, before in zip(over_the_trunk(lab), before, strict=True)]
    size = ("--sizes", "1MiB", "--iterations", "4", "--timeout", "40")
    running = [lab.job((0, 1, 2, 3), *size, "--ring", str(100 + ring), port=PORT + 10 + ring) for ring in range(3)]
    running += [lab.job((3, 0, 2, 1), *size, port=PORT + 20), lab.job((0, 1), *size, port=PORT + 21), lab.job((3, 1), *size, port=PORT + 22)]
    for job in running:
        lab.exact(job)
    # One in the other rack dies.
    running = lab.job((0, 1, 2, 3), "--sizes", "1MiB", "--iterations", "100000", "--timeout", "30", "--ring", "200", port=PORT + 30)
    lab.wait_until(above, "the ring is summed together with other switches ring=200")
    time.sleep(1)
    running[2].kill()
    errors = lab.errors([running[rank] for rank in (0, 1, 3)])
    expect(any("rank 2 at " in error for error in errors), f"{errors}")
    # The switch below is restarted in the middle of a run.
    running = lab.job((0, 1, 2, 3), "--sizes", "1MiB", "--iterations", "100000", "--timeout", "30", "--ring", "300", port=PORT + 40)
    lab.wait_until(above, "the ring is summed together with other switches ring=300")
    time.sleep(1)
    words = lab.ended(below)
    below = lab.switch("--uplink", "trunk", where="bridge2", ports=("p2", "p3", "trunk"))
    start = time.monotonic()
    errors = lab.errors(running)
    took = time.monotonic() - start
    expect(took < 25, f"after {took:.1f} s: {errors}")
    lab.exact(lab.job((0, 1, 2, 3), *size, "--ring", "300", port=PORT + 50))
    parts, wholes = number(words, "trunk_part_bytes"), number(lab.ended(above), "trunk_whole_bytes")
    expect(parts > 0 and wholes > 0, "nothing was summed together")
    # Each of the ring's two connections a direction would bring that once.
    vector = mib * times << 20
    expect(all(vector <= count < vector * 3 // 2 for count in crossed), f"{crossed} bytes have crossed for vectors of {vector}")
    shares = " and ".join(f"{count / vector:.2f}" for count in crossed)
    crossing = f"{shares} of a vector's bytes went up and down where two connections a direction cross"
    return f"exact; {crossing}; a dead worker was told, and a restarted switch after {took:.1f} s"


def racks_loss(lab: Lab) -> str:
    """The same while one frame in a hundred is lost at both switches, between them, too."""
    second_rack(lab)
    for host in range(lab.star.workers):
        must(["ip", "-n", lab.star.name(str(host)), "link", "set", INTERFACE, "gso_max_segs", "1"])
    above, below = two_racks(lab, "--loss", "0.01")
    size = ("--sizes", "1MiB", "--iterations", "3", "--timeout", "50")
    start = time.monotonic()
    lab.exact(lab.job((0, 1, 2, 3), *size))
    lab.exact(lab.job((0, 2, 1, 3), *size, port=PORT + 1))
    running = [lab.job((0, 1, 2, 3), *size, "--ring", str(100 + ring), port=PORT + 10 + ring) for ring in range(2)]
    for job in running:
        lab.exact(job)
    took = time.monotonic() - start
    words = [lab.ended(switch) for switch in (above, below)]
    again = [number(text, "trunk_repeated") for text in words]
    expect(all(count > 10 for count in again), f"{again} messages were sent again between switches")
    expect(all(number(text, "rings_failed") == 0 for text in words), f"{words}")
    return f"exact in {took:.0f} s; between the switches {again[0]} and {again[1]} messages were sent again"


def ipv6(lab: Lab) -> str:
    """Workers by IPv6, and in a virtual LAN, where nobody sums."""
    star = lab.star
    for host in range(star.workers):
        must(["ip", "-n", star.name(str(host)), "address", "add", f"fd00::{host + 1}/64", "dev", INTERFACE, "nodad"])
    switch = lab.switch()
    lab.exact(lab.job(range(star.workers), "--sizes", "1MiB", "--timeout", "30", address=lambda host: f"[fd00::{host + 1}]"))
    tagged(star)
    words = lab.ended(switch)
    expect(number(words, "summed") > 10 and number(words, "unsummed") == 1, f"not summed: {words[-500:]}")
    expect('a message passes unsummed interface="p0" reason="tagged"' in words, "the switch has not said that a message passed unsummed")
    return "summed by IPv6; a message in a virtual LAN passed with its tag, and the log says that nobody has summed it"


#: Sends a frame, or waits for one of that kind and prints its tag, which the kernel takes out.
TAGGED = """
import socket, struct, sys, time
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
port.bind(("eth0", 0))
frame = bytes.fromhex(sys.argv[2])
if sys.argv[1] == "send":
    port.send(frame)
else:
    port.setsockopt(263, 8, 1)
    port.settimeout(20)
    print("waits", flush=True)
    while True:
        got, beside, _, _ = port.recvmsg(2000, 100)
        if got[:12] == frame[:12] and frame[-40:] in got:
            said = struct.unpack("IIIHHHH", beside[0][2][:20])
            print("tag", said[5] & 0xfff, hex(said[6]))
            break
"""


def tagged(star: Star) -> None:
    """A message in a virtual LAN goes from host 0 to host 1."""
    ip = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + 20 + 44, 1, 0x4000, 64, 6, 0, bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2])))
    total = sum(struct.unpack(">10H", ip))
    ip[10:12] = struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)
    segment = struct.pack(">HHIIBBHHH", 5_000, 7_700, 1, 1, 0x50, 0x18, 1_000, 0, 0) + b"\xfa\x17\x1e\xd0" + bytes(range(40))
    frame = bytes([2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2, 0x81, 0, 0, 5, 8, 0]) + ip + segment
    with Crew() as crew:
        waits = crew.start([*star.inside(1), sys.executable, "-c", TAGGED, "receive", frame.hex()])
        crew.wait_until_it_says(waits, "waits", time.monotonic() + PATIENCE)
        crew.finish(crew.start([*star.inside(0), sys.executable, "-c", TAGGED, "send", frame.hex()]), time.monotonic() + PATIENCE)
        said = crew.finish(waits, time.monotonic() + PATIENCE)
        expect("tag 5 0x8100" in said, f"the tag was lost: {said}")


#: Prints a page, with its status where that is an error's.
FETCH = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1]).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def pages(lab: Lab) -> str:
    """What is measured, while it happens."""
    switch = lab.switch("--http", "127.0.0.1:9470")

    def page(name: str) -> str:
        return must([*lab.star.inside("bridge"), sys.executable, "-c", FETCH, f"http://127.0.0.1:9470/{name}"])

    lab.exact(lab.job((0, 1, 2), "--sizes", "1MiB", "--timeout", "30"))
    running = lab.job((0, 1, 2), "--sizes", "1MiB", "--iterations", "100000", "--timeout", "30", "--ring", "5")
    lab.wait_until(switch, "a ring begins ring=5")
    time.sleep(1)
    metrics = page("metrics")
    value = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in metrics.splitlines()}
    expect(float(value["fanin_transparent_summed_segments_total"]) > 10, metrics)
    expect(value['fanin_transparent_ring_world{ring="5"}'] == "3" and value['fanin_transparent_port_up{interface="p0"}'] == "1", metrics)
    expect(page("healthz").strip() == "ok", "it is not well")
    for worker in running:
        worker.kill()
    for port in lab.star.ports[1:]:
        must(["ip", "-n", lab.star.name("bridge"), "link", "set", port, "down"])
    time.sleep(1)
    expect("503 fewer than 2 interfaces are in service" in page("healthz"), page("healthz"))
    expect('fanin_transparent_port_up{interface="p1"} 0' in page("metrics"), "p1 is told to be up")
    return f"{len(value)} lines of metrics"


CASES: dict[str, Callable[[Lab], str]] = {
    "damage": damage,
    "ports": ports,
    "jobs": jobs,
    "rings": rings,
    "killed": killed,
    "memory": memory,
    "two-switches": two_switches,
    "racks": racks,
    "racks-loss": racks_loss,
    "ipv6": ipv6,
    "pages": pages,
}


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--offloads-off"]:
        offloads_off(arguments[1])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="target/release/fanin")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    args = parser.parse_args(arguments)
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}: one of {', '.join(CASES)}")
    if reason := obstacle():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    failed = False
    for name in args.cases or CASES:
        try:
            with Star(4, RATE, joined=False) as star, Crew() as crew:
                print(f"{name}: {CASES[name](Lab(star, crew, args.fanin))}", flush=True)
        except (Failed, NoNetwork, KeyError, ValueError) as error:
            failed = True
            print(f"{name}: failed: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
