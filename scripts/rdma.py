#!/usr/bin/env python3
"""Sums inside RDMA connections, with the kernel's own RoCE at both ends: guests with `rdma_rxe`, and `fanin switch --transparent` between,
or two such switches that sum together.

Each worker is a virtual machine that runs examples/rdma/worker.c, which knows libibverbs and nothing of Fanin. Their kernels judge every ICRC,
number, key and address; the workers compare every element. Needs neither root nor KVM; what it installs and downloads is Debian's.

Usage: rdma.py [--fanin PATH] [--workers N] [CASE ...]

Cases: clean, float, loss, late, again, numbers, rings, dead, control, racks, racks-loss. Exits with 1 if an element is wrong, if whoever waits
for the dead has no error, or if data of workers crosses the cable between two switches. Python's standard library only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import guests
import trace_tests
import uplink
from processes import Crew, Failed

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "examples" / "rdma" / "worker.c"
SUBNET = "10.99.0"
RING = 7
#: Where workers find each other: that of the first ring, and the next ones'.
WORKER_PORT = 7_711
#: How much of a case scapy looks at: it takes about a millisecond for a frame.
TRACED_FRAMES = 5_000


@dataclass(frozen=True)
class Case:
    """What is run, and what must come out."""

    type: str = "i32"
    elements: int = 100_000
    operations: int = 2
    #: Share of frames that the switch loses on their way in.
    loss: float = 0.0
    #: How late the last worker is.
    late_ms: int = 0
    #: How often the guests are started; the switch stays.
    runs: int = 1
    #: Whether the switch knows of the ring.
    summed: bool = True
    #: The first packet number of each connection; None is a random one.
    psn: int | None = None
    #: Rings over the same cards at once, as of several GPUs of a machine, and whether another job is there whose ranks are in another order.
    rings: int = 1
    other_job: bool = False
    #: The worker that is killed after its first operation.
    killed: int | None = None
    #: How often cards send again (`retry_cnt` of a queue pair, 3 bits). With the example's timeout of 4.096 us * 2^17 = 0.54 s, 6 means that a
    #: card gives up when nothing new is acknowledged for 7 * 0.54 = 3.8 s, and a late worker, or the boot of the next guest, or a machine
    #: that has three times as much to do, takes longer. With 7, the kernel's RoCE sends again for ever: then a worker ends when the switch
    #: says so, or at the case's own limit. A longer timeout would do as well, but it is also how long a packet lost twice is waited for.
    retries: int = 7
    #: Whether half of the guests are behind another switch. Then there are four of them.
    racks: bool = False
    #: A run of a case takes 10 s where two processors have nothing else to do, most of which the guests boot, 40 s where they have three times as
    #: much, and three minutes where forty processes want them.
    timeout_s: float = 400.0


CASES = {
    "clean": Case(),
    "float": Case(type="f32"),
    # Twice as many messages as may be under way. Of a hundred packets three sums are late, and each time all cards go back, some of them
    # after half a second: this takes four to six seconds an operation where three machines are emulated by two busy processors.
    "loss": Case(loss=0.01, elements=150_000),
    # Longer than a card's timeout, so that everybody's packets are sent again while they are held, and longer than a dead one's silence.
    "late": Case(late_ms=5_000, operations=1),
    # The same numbers of queue pairs in other runs.
    "again": Case(elements=20_000, operations=1, runs=2),
    # The same numbers of queue pairs and of first packets, with other vectors.
    "numbers": Case(elements=20_000, operations=1, runs=2, psn=0),
    # Parallel NetReduce, and two jobs: each guest has three workers on one card.
    "rings": Case(loss=0.01, elements=60_000, operations=1, rings=2, other_job=True),
    # By themselves the others would send again for ever.
    "dead": Case(elements=20_000, operations=1_000, killed=1),
    # One sum goes up and one comes down. The last rank's other neighbours are in the other rack.
    "racks": Case(racks=True, elements=60_000),
    # Two rings over each card, and another job, whose ranks are in another order.
    "racks-loss": Case(racks=True, loss=0.01, elements=30_000, operations=1, rings=2, other_job=True),
    # What the workers say where nobody sums: that this is noticed.
    "control": Case(elements=20_000, operations=1, summed=False),
}


def obstacle() -> str | None:
    """Why this cannot be run here, or None if it can."""
    return guests.obstacle()


def ports(count: int) -> list[int]:
    """UDP ports of loopback that are free now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    numbers = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return numbers


def build(folder: Path) -> Path:
    """The workers' program."""
    program = folder / "worker"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(WORKER), "-libverbs"], check=True)
    return program


#: How long a card may leave questions of the switch unanswered where no worker is dead.
PATIENT_S = 60
#: A switch that asks whoever is silent for three seconds, and an emulated machine that is slow to say what it has heard.
DEAD_S = 20.0


def plugged(case: Case, workers: int) -> list[guests.Guest]:
    """The guests of a case."""
    free = ports(2 * workers)
    addresses = [f"{SUBNET}.{rank + 1}" for rank in range(workers)]

    def words(guest: int, number: int, hosts: list[str]) -> list[str]:
        rank = hosts.index(addresses[guest])
        named = {"rank": rank, "addresses": ",".join(hosts), "ring": RING + number, "type": case.type, "elements": case.elements}
        named |= {"operations": case.operations, "late-ms": case.late_ms if rank == workers - 1 else 0}
        named |= {"port": WORKER_PORT + number} if number else {}
        named |= {"retries": case.retries} | ({} if case.psn is None else {"psn": case.psn})
        return [word for name, value in named.items() for word in (f"--{name}", str(value))]

    rings = list(enumerate(ring_hosts(case, addresses)))
    plugged = []
    for guest, address in enumerate(addresses):
        first, *more = [words(guest, number, hosts) for number, hosts in rings]
        plugged.append(guests.Guest(guest, address, first, free[2 * guest], free[2 * guest + 1], more))
    return plugged


def ring_hosts(case: Case, addresses: list[str]) -> list[list[str]]:
    """The hosts of each ring, by rank."""
    return [addresses] * case.rings + ([addresses[::-1]] if case.other_job else [])


def switch_command(
    fanin: str, case: Case, crew: Sequence[guests.Guest], trace: str | None = None, rack: tuple[Sequence[guests.Guest], str, bool] | None = None
) -> list[str]:
    """The switch between the guests. `rack`: the guests that are at this one, its cable to the other switch, and whether that is above."""
    here, cable, is_below = rack or (crew, None, False)
    cables = [f"udp:127.0.0.1:{guest.switch_port}/127.0.0.1:{guest.card_port}" for guest in here] + ([cable] if cable else [])
    command = [fanin, "switch", "--transparent", ",".join(cables)]
    if case.summed:
        told = f":here={','.join(guest.address for guest in here)}" if is_below else ""
        for number, hosts in enumerate(ring_hosts(case, [guest.address for guest in crew])):
            # Who is dead is found out by his silence; where nobody is, an emulated machine that does not get a processor for so long is not.
            silence = "" if case.killed is not None else f":silence={PATIENT_S}s"
            command += ["--rdma-ring", f"{RING + number}:{case.type}:sum:{','.join(hosts)}{told}{silence}"]
    if is_below and cable:
        command += ["--uplink", cable]
    if case.loss:
        command += ["--loss", str(case.loss)]
    return command + (["--trace", trace, "--trace-frames", str(TRACED_FRAMES)] if trace else [])


def run_racks(name: str, fanin: str, image: Path, trace: str | None = None) -> dict:
    """Runs a case of four guests in two racks; gives what came out."""
    case, workers = CASES[name], 4
    rings = case.rings + int(case.other_job)
    kernel, _ = guests.kernel()
    crew_of_guests = plugged(case, workers)
    with uplink.Uplink() as cable, Crew() as crew:
        halves = [(crew_of_guests[:2], cable.below, True), (crew_of_guests[2:], cable.above, False)]
        commands = [switch_command(fanin, case, crew_of_guests, None if number else trace, rack) for number, rack in enumerate(halves)]
        switches = [crew.start(command, {"NO_COLOR": "1"}) for command in commands]
        deadline = time.monotonic() + case.timeout_s
        running = [crew.start(guest.command(kernel, image)) for guest in other_vectors(crew_of_guests, 0)]
        results = outcomes(crew, running, switches[0], deadline, rings)
        for switch in switches:
            switch.terminate()
            switch.wait(10)
        said = [crew.words(switch) for switch in switches]
        done = [switch_words(words) for words in said]
    row = {"case": name, "workers": workers, "type": case.type, "elements": case.elements, "switch": done[0], "above": done[1]}
    row |= {key: sum(result[key] for result in results) for key in ("wrong", "unsummed")}
    row["seconds"] = max(second for result in results for second in result["seconds"])
    row["messages"] = messages(case, rings, workers)
    row["out_of_sequence"] = sum(result["counters"].get("out_of_seq_request", 0) for result in results)
    row["vector_bytes"] = 4 * case.elements * case.operations * rings
    row["uplink"] = {"up": dataclasses.asdict(cable.up), "down": dataclasses.asdict(cable.down)}
    row["expected"] = row["wrong"] == 0 and row["unsummed"] == 0 and all(one.get("rdma_ended") == 0 for one in done)
    # However many workers and connections there are, and whatever is sent again: each byte of a ring's sum once in a direction. What was begun
    # anew is summed anew.
    anew = sum(map(begun_anew, said))
    row["expected"] &= all(rings <= one.get("rdma_runs", 0) <= rings + anew for one in done)
    row["expected"] &= all(0 <= bytes_ - row["vector_bytes"] <= anew * row["vector_bytes"] // rings for bytes_ in crossed(done))
    row["expected"] &= not cable.up.frames.get("data") and not cable.down.frames.get("data")
    return row


def crossed(done: Sequence[dict[str, int]]) -> tuple[int, int]:
    """Bytes of sums that the lower of two switches has sent up, and the upper one down."""
    return done[0].get("trunk_part_bytes", 0), done[1].get("trunk_whole_bytes", 0)


def begun_anew(text: str) -> int:
    """How often a switch has begun a run anew: a worker came first more than a second after others were last heard, as where a machine that has too
    much to do lets one guest wait."""
    return text.count("were silent for more than a second")


def messages(case: Case, rings: int, workers: int) -> int:
    """How many of them there are in a case."""
    return -(-case.elements // ((170 * 1_024 - 16) // 4)) * case.operations * case.runs * rings * workers


def uplink_words(row: dict) -> str:
    """What crossed the cable between two switches, for people."""
    said = []
    for way in ("up", "down"):
        counts = row["uplink"][way]
        total, sums = sum(counts["bytes"].values()), counts["bytes"].get("switches", 0)
        shares = f"{total / row['vector_bytes']:.2f} times the vectors, {sums / row['vector_bytes']:.2f} of it between switches"
        said.append(f"{way}: {total} bytes, {shares}, {counts['frames'].get('data', 0)} writes with data")
    return f"{row['case']}: {row['vector_bytes']} bytes of vectors; {'; '.join(said)}"


def outcome(console: str, expected: int = 1) -> dict:
    """What a guest's console says, on which so many workers were."""
    operations = [{key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", line)} for line in re.findall(r"^operation=.*", console, re.M)]
    done = re.findall(r"^done rank=\d+ wrong=(\d+) unsummed=(\d+)", console, re.M)
    if not done or len(done) != expected:
        raise Failed(f"a worker has not ended well: {console.strip()[-800:]}")
    counters = {name: int(value) for name, value in re.findall(r"^guest: counter (\w+)=(\d+)", console, re.M)}
    wrong, unsummed = (sum(int(worker[field]) for worker in done) for field in (0, 1))
    return {"wrong": wrong, "unsummed": unsummed, "seconds": [one["seconds"] for one in operations], "counters": counters}


def switch_words(text: str) -> dict[str, int]:
    """The numbers in the switch's last line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [line for line in plain.splitlines() if " ended " in line]
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", lines[-1])} if lines else {}


def run_case(name: str, fanin: str, workers: int, image: Path, trace: str | None = None) -> dict:
    """Runs a case; gives what came out."""
    case = CASES[name]
    if case.racks:
        return run_racks(name, fanin, image, trace)
    rings = case.rings + int(case.other_job)
    kernel, _ = guests.kernel()
    crew_of_guests = plugged(case, workers)
    results = []
    with Crew() as crew:
        switch = crew.start(switch_command(fanin, case, crew_of_guests, trace), {"NO_COLOR": "1"})
        ended_after_s = None
        for run in range(case.runs):
            deadline = time.monotonic() + case.timeout_s
            running = [crew.start(guest.command(kernel, image)) for guest in other_vectors(crew_of_guests, run)]
            if case.killed is not None:
                ended_after_s = kill_one(crew, running, case.killed, deadline)
                continue
            results += outcomes(crew, running, switch, deadline, rings)
        switch.terminate()
        switch.wait(10)
        last_words = crew.words(switch)
        done = switch_words(last_words)
    row = {"case": name, "workers": workers, "type": case.type, "elements": case.elements, "switch": done}
    row |= {key: sum(result[key] for result in results) for key in ("wrong", "unsummed")}
    row["seconds"] = max((second for result in results for second in result["seconds"]), default=ended_after_s or 0.0)
    # The slowest worker's time of each operation.
    row["operation_seconds"] = [max(times) for times in zip(*(result["seconds"] for result in results), strict=False)]
    row["messages"] = messages(case, rings, workers)
    row["out_of_sequence"] = sum(result["counters"].get("out_of_seq_request", 0) for result in results)
    row["expected"] = row["wrong"] == 0 and row["unsummed"] == 0 if case.summed else row["unsummed"] == row["messages"]
    if case.runs == 1 and case.summed and case.killed is None:
        row["expected"] &= rings <= done.get("rdma_runs", 0) <= rings + begun_anew(last_words) and done.get("rdma_ended") == 0
    if case.killed is not None:
        row["messages"] = 0
        row["expected"] = done.get("rdma_ended") == 1 and f"rank {case.killed} does not answer" in re.sub(r"\x1b\[[0-9;]*m", "", last_words)
    return row


def outcomes(crew: Crew, running: Sequence[subprocess.Popen], switch: subprocess.Popen, deadline: float, workers_each: int) -> list[dict]:
    """What the guests' consoles say when all have ended. The first one that ends badly is what has to be said: the others may wait for it."""
    waiting, results = list(running), []
    try:
        while waiting:
            # At the deadline the first one that has not ended is to blame.
            for process in [one for one in waiting if one.poll() is not None] or waiting[: int(time.monotonic() >= deadline)]:
                results.append(outcome(crew.finish(process, deadline), workers_each))
                waiting.remove(process)
            time.sleep(0.05)
    except Failed as error:
        switch.terminate()
        switch.wait(10)
        others = "".join(f"\nanother guest{crew.last_words(process)[-300:]}" for process in waiting[1:])
        raise Failed(f"{error}{others}\nthe switch{crew.last_words(switch)}") from error
    return results


def other_vectors(crew: Sequence[guests.Guest], run: int) -> list[guests.Guest]:
    """The same guests with vectors of their own for each run, so that sums of another run are wrong ones."""

    def other(words: Sequence[str]) -> list[str]:
        return [*words, "--first-operation", str(100 * run)]

    return [dataclasses.replace(guest, arguments=other(guest.arguments), more=[other(words) for words in guest.more]) for guest in crew]


def kill_one(crew: Crew, running: Sequence[subprocess.Popen], killed: int, deadline: float) -> float:
    """Kills a guest in the middle of the work; gives after how many seconds the last of the others had an error."""
    crew.wait_until_it_says(running[killed], "operation=0", deadline)
    running[killed].kill()
    begin = time.monotonic()
    for process in [process for process in running if process is not running[killed]]:
        crew.wait_until_it_says(process, "guest: ended with 2", begin + DEAD_S)
    return time.monotonic() - begin


def table(rows: Sequence[dict]) -> str:
    """For people."""
    titles = "case | workers | elements | wrong elements | messages without sums | packets with sums | came again | wrong ICRCs | slowest operation, s"
    lines = [f"| {titles} | |", "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        done = row["switch"]
        cells = [row["case"], row["workers"], f"{row['elements']} {row['type']}", row["wrong"], f"{row['unsummed']} of {row['messages']}"]
        cells += [done.get("rdma_summed", 0), done.get("rdma_repeated", 0)]
        cells += [f"{row['wrong_icrcs']} of {row['frames_of_rocev2']}", f"{row['seconds']:.2f}", "as expected" if row["expected"] else "WRONG"]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanin", default="target/release/fanin")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--out", help="file for the rows as JSON")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    args = parser.parse_args(arguments)
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}: one of {', '.join(CASES)}")
    if not 2 <= args.workers <= 8:
        parser.error(f"argument --workers: {args.workers}, and 2 to 8 are possible")
    if reason := obstacle():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="fanin-rdma-") as name:
        folder = Path(name)
        image = guests.initramfs(build(folder), folder)
        try:
            rows = [run_case(case, args.fanin, args.workers, image, str(folder / f"{case}.pcapng")) for case in args.cases or CASES]
            traces = trace_tests.judge([folder / f"{row['case']}.pcapng" for row in rows])
        except (Failed, RuntimeError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    for row, found in zip(rows, traces, strict=True):
        # Beside the kernels: what comes to the switch and what leaves it, as scapy sees it.
        row["frames_of_rocev2"] = found["roce"]
        row["wrong_icrcs"] = found["icrc_wrong"]
        row["expected"] &= found["icrc_wrong"] == 0 and found["roce"] > 0
    print(table(rows))
    for row in rows:
        if "uplink" in row:
            print(uplink_words(row))
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(row["expected"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
