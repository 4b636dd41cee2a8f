#!/usr/bin/env python3
"""Measures allreduce between processes of this machine: Fanin, PyTorch's gloo and Open MPI on the same work, in turns, in one run.

    memory     4 workers on loopback without limits, 64 MiB: UDP and shared memory
    small      4 workers on this host, 4 KiB: shared memory
    garbage    4 workers on loopback at `fanin switch`, 64 MiB by UDP, with and without garbage for the job's port: its rate, its share of
               the switch's processor time, and by how much the switch has grown. With root also in the name of members.
    flood      the same where packets have keys, against a flood of as many packets for a port of nobody: garbage, and packets in the name of
               members, cut short, damaged, altered, and once more. What is measured is what it costs the job and not what it costs to send.
    links4, links8
               4 and 8 network namespaces on a bridge, every link with 1 Gbit/s each way, 64 MiB: against gloo, against the payload rate
               that plain UDP has on one of the links, and against that of plain UDP from and to all workers at once, which is what the
               machine's cores carry before anything is summed. The switch is a process in a namespace of its own, without a limit.

Prints medians, the share of time in which the machine's cores were idle, its load average, and ratios. A ratio is the median over the
rounds of the ratio within a round, since whatever else slows the machine down hits neighbours in a round alike. What cannot be measured
here is skipped, with the reason. Python's standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import gloo
import measurement
import namespaces
import openmpi
from bench_peers import fanin_program
from processes import Crew, Failed, cpu_seconds

LARGE, SMALL = 64 << 20, 4 << 10
LARGE_CALLS, SMALL_CALLS = 5, 2_000
LINK_RATE, LINK_SECONDS, LINK_PORT, SWITCH_PORT = "1gbit", 2, 7_201, 7_200
TIMEOUT_S = 180.0

#: Garbage packets a second.
GARBAGE_RATE = 20_000
GARBAGE_WORLD, GARBAGE_CALLS, GARBAGE_PAYLOAD = 4, 20, 1_408

UDP, MEMORY = "Fanin UDP", "Fanin shared memory"
#: As gloo, whose only way it is; Open MPI's ranks have a second vector.
UDP_IN_PLACE, MEMORY_IN_PLACE = "Fanin UDP, in place", "Fanin shared memory, in place"
QUIET, GARBAGE = "Fanin UDP, quiet", "Fanin UDP, garbage"
ELSEWHERE, FLOOD = "Fanin UDP with keys, flood elsewhere", "Fanin UDP with keys, flooded"
GLOO, MPI_MEMORY, MPI_TCP = "gloo", "Open MPI shared memory", "Open MPI TCP"
RAW, RAW_TOGETHER = "plain UDP", "plain UDP, all at once"
#: What runs a contender once and gives its measurement.
Run = Callable[[], dict]


@dataclass(frozen=True)
class Goal:
    """A ratio of two contenders' medians that should be reached."""

    title: str
    key: str
    ours: str
    theirs: str
    #: Ours over theirs: at least (`>=`) or at most (`<=`) this, or only shown (`""`).
    sense: str = ""
    bound: float = 0.0


@dataclass
class Case:
    """Contenders on the same work."""

    name: str
    title: str
    #: Sets up what all contenders need and gives them; they run inside the stack.
    contenders: Callable[[ExitStack, Setup], dict[str, Run]]
    goals: list[Goal]
    obstacle: Callable[[], str | None] = lambda: None
    #: More lines about the results of all rounds.
    remarks: Callable[[dict[str, list[dict]]], list[str]] = lambda _results: []


@dataclass
class Setup:
    """What there is on this machine; a peer that is missing has its reason in `skipped`."""

    skipped: dict[str, str] = field(default_factory=dict)

    def has(self, peer: str) -> bool:
        """Whether a peer can be used."""
        return peer not in self.skipped


def fanin_on_loopback(world: int, size: int, calls: int, transport: str, *more: str) -> dict:
    """All ranks on this host; rank 0 runs the switch."""
    command = [str(fanin_program()), "bench", "allreduce", "--workers", str(world), "--sizes", str(size), "--transport", transport]
    deadline = time.monotonic() + TIMEOUT_S
    with Crew() as crew:
        started = crew.start([*command, "--iterations", str(calls), "--format", "json", *more])
        return measurement.only_row(crew.finish(started, deadline))


def on_loopback(size: int, calls: int, wanted: Sequence[str]) -> Callable[[ExitStack, Setup], dict[str, Run]]:
    """Contenders with four ranks on this host."""
    world = 4
    everyone: dict[str, tuple[str | None, Run]] = {
        UDP: (None, lambda: fanin_on_loopback(world, size, calls, "udp")),
        MEMORY: (None, lambda: fanin_on_loopback(world, size, calls, "shm")),
        UDP_IN_PLACE: (None, lambda: fanin_on_loopback(world, size, calls, "udp", "--in-place")),
        MEMORY_IN_PLACE: (None, lambda: fanin_on_loopback(world, size, calls, "shm", "--in-place")),
        GLOO: ("gloo", lambda: gloo.run(world, size, calls, [[]] * world, "127.0.0.1", "lo", TIMEOUT_S)),
        MPI_MEMORY: ("openmpi", lambda: openmpi.run(world, size, calls, "memory", TIMEOUT_S)),
        MPI_TCP: ("openmpi", lambda: openmpi.run(world, size, calls, "tcp", TIMEOUT_S)),
    }

    def contenders(_stack: ExitStack, setup: Setup) -> dict[str, Run]:
        return {name: run for name, (peer, run) in everyone.items() if name in wanted and (peer is None or setup.has(peer))}

    return contenders


@dataclass
class Switch:
    """A `fanin switch` on loopback, all of whose jobs use one UDP port."""

    process: subprocess.Popen
    port: int
    data_port: int
    http: str

    def metrics(self) -> dict[str, float]:
        """What it tells, by name with labels."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


def free_port(kind: socket.SocketKind) -> int:
    """A port of loopback that nobody has just now."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_switch(crew: Crew, *options: str) -> Switch:
    """Starts one, and waits until it answers."""
    control, web, data = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_STREAM), free_port(socket.SOCK_DGRAM)
    http = f"127.0.0.1:{web}"
    command = [str(fanin_program()), "switch", "--listen", f"127.0.0.1:{control}", "--http", http, "--data-ports", f"{data}-{data}", *options]
    switch = Switch(crew.start(command), control, data, http)
    deadline = time.monotonic() + 10
    while True:
        try:
            switch.metrics()
            return switch
        except OSError as error:
            if time.monotonic() > deadline or switch.process.poll() is not None:
                raise Failed(f"the switch does not answer: {error}{crew.last_words(switch.process)}") from error
            time.sleep(0.05)


def at_switch(switch: Switch, rate: int, *how: str) -> dict:
    """All ranks on this host, at a switch that gets so many packets of garbage a second besides; `how`: see garbage.py."""
    deadline, calls = time.monotonic() + TIMEOUT_S, GARBAGE_CALLS
    command = [str(fanin_program()), "bench", "allreduce", "--workers", str(GARBAGE_WORLD), "--switch", f"127.0.0.1:{switch.port}"]
    work = ["--sizes", str(LARGE), "--iterations", str(calls), "--transport", "udp", "--format", "json"]
    before = switch.metrics()
    begin = time.monotonic()
    poured = {"sent": {}, "seconds": 1.0}
    with Crew() as crew:
        pouring = None
        if rate:
            script = Path(__file__).resolve().parent / "garbage.py"
            pouring = crew.start([sys.executable, str(script), "127.0.0.1", str(switch.data_port), str(rate), *how])
        row = measurement.only_row(crew.finish(crew.start([*command, *work], {"FANIN_PAYLOAD": str(GARBAGE_PAYLOAD)}), deadline))
        took = time.monotonic() - begin
        if pouring is not None:
            pouring.send_signal(signal.SIGTERM)
            poured = json.loads(crew.finish(pouring, deadline))
    # Until the switch has closed the job and added up what it has seen.
    time.sleep(1.0)
    return row | garbage_seen(before, switch.metrics(), poured, took, calls)


def garbage_seen(before: dict[str, float], after: dict[str, float], poured: dict, took: float, calls: int) -> dict:
    """What the switch says of a run; the warm-up is a call as well."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    switch_cpu = grown["process_cpu_seconds_total"]
    prefix = 'fanin_switch_dropped_packets_total{reason="'
    dropped = {name[len(prefix) :].rstrip('"}'): int(value) for name, value in grown.items() if name.startswith(prefix) and value > 0}
    return {
        "switch_cpu_s_per_gib": switch_cpu / (calls + 1) / (LARGE / 2**30),
        "switch_cpu_share": switch_cpu / took,
        "resident_grown_bytes": int(grown["process_resident_memory_bytes"]),
        "garbage_per_s": sum(poured["sent"].values()) / poured["seconds"],
        "garbage_sent": poured["sent"],
        "garbage_dropped": dropped,
    }


def beside_garbage(stack: ExitStack, _setup: Setup) -> dict[str, Run]:
    """The same job with and without garbage, at the same switch."""
    switch = start_switch(stack.enter_context(Crew()))
    return {QUIET: lambda: at_switch(switch, 0), GARBAGE: lambda: at_switch(switch, GARBAGE_RATE)}


def beside_flood(stack: ExitStack, _setup: Setup) -> dict[str, Run]:
    """The same job with a flood for its port, and with one for a port of nobody."""
    switch = start_switch(stack.enter_context(Crew()), "--packets", "mac")
    sink = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sink.bind(("127.0.0.1", 0))
    nobody = str(sink.getsockname()[1])
    return {
        ELSEWHERE: lambda: at_switch(switch, GARBAGE_RATE, "altered", nobody),
        FLOOD: lambda: at_switch(switch, GARBAGE_RATE, "altered"),
    }


def told_of_flood(results: dict[str, list[dict]]) -> list[str]:
    """As of garbage."""
    return told_of_garbage({QUIET: results.get(ELSEWHERE, []), GARBAGE: results.get(FLOOD, [])})


def told_of_garbage(results: dict[str, list[dict]]) -> list[str]:
    """Rate, share of processor time, memory: a line each."""
    quiet, noisy = results.get(QUIET, []), results.get(GARBAGE, [])
    if not quiet or not noisy:
        return []
    rate = statistics.median(row["garbage_per_s"] for row in noisy)
    shares = [1 - calm["switch_cpu_s_per_gib"] / row["switch_cpu_s_per_gib"] for calm, row in zip(quiet, noisy, strict=False)]
    kinds = {kind: sum(row["garbage_sent"].get(kind, 0) for row in noisy) for kind in noisy[0]["garbage_sent"]}
    reasons = {reason: sum(row["garbage_dropped"].get(reason, 0) for row in noisy) for reason in noisy[0]["garbage_dropped"]}
    listed = [", ".join(f"{count:,} {name}" for name, count in counts.items()) for counts in (kinds, reasons)]
    grown = [row["resident_grown_bytes"] / 2**20 for row in [*quiet, *noisy]]
    return [
        f"  garbage: {rate:,.0f} packets a second, {listed[0]}; dropped: {listed[1]}",
        f"  garbage's share of the switch's processor time: {statistics.median(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})",
        f"  the switch's memory grew by {grown[0]:.1f} MiB in the first run, and by {sum(grown[1:]):.1f} MiB in all others together",
    ]


def plain_flows(flows: Sequence[tuple[list[str], list[str], str]]) -> dict:
    """The lowest payload rate among flows with nothing above UDP that run at once: (sender's prefix, receiver's prefix, address).

    The processor time is that of all flows for a GiB of each."""
    link = [str(fanin_program()), "bench", "link"]
    deadline = time.monotonic() + TIMEOUT_S
    with Crew() as crew:
        listeners = [crew.start([*to, *link, "--listen", address, "--once"]) for _, to, address in flows]
        sending = ["--seconds", str(LINK_SECONDS), "--format", "json"]
        senders = [crew.start([*of, *link, "--connect", address, *sending]) for of, _, address in flows]
        measured = [json.loads(crew.finish(sender, deadline)) for sender in senders]
        for listener in listeners:
            crew.finish(listener, deadline)
    rate = min(flow["payload_mb_s"] for flow in measured)
    cpu = sum(flow["sender_cpu_s_per_gib"] + flow["receiver_cpu_s_per_gib"] for flow in measured)
    return {"algbw_mb_s": rate, "cpu_s_per_gib": cpu, "wrong": 0, "flows": measured}


def plain_udp(star: namespaces.Star) -> dict:
    """The payload rate between two workers."""
    return plain_flows([(star.inside(0), star.inside(1), f"{star.worker_address(1)}:{LINK_PORT}")])


def plain_udp_together(star: namespaces.Star) -> dict:
    """The payload rate from every worker to the switch's namespace and back, all at once: the packets of an allreduce, and nothing else."""
    switch = star.inside("switch")
    there = [(star.inside(rank), switch, f"{star.switch_address}:{LINK_PORT + rank}") for rank in range(star.workers)]
    back = [(switch, star.inside(rank), f"{star.worker_address(rank)}:{LINK_PORT}") for rank in range(star.workers)]
    return plain_flows([*there, *back])


def fanin_on_links(star: namespaces.Star, switch: subprocess.Popen, size: int, calls: int) -> dict:
    """One rank in each namespace, the switch in its own. The switch's processor time counts too."""
    deadline = time.monotonic() + TIMEOUT_S
    bench = [str(fanin_program()), "bench", "allreduce", "--world", str(star.workers), "--switch", f"{star.switch_address}:{SWITCH_PORT}"]
    work = ["--sizes", str(size), "--iterations", str(calls), "--transport", "udp", "--format", "json"]
    before = cpu_seconds(switch.pid)
    with Crew() as crew:
        ranks = [crew.start([*star.inside(rank), *bench, "--rank", str(rank), *work]) for rank in range(star.workers)]
        texts = [crew.finish(rank, deadline) for rank in ranks]
    row = measurement.only_row(texts[0])
    # The warm-up is a call as well.
    switch_cpu = (cpu_seconds(switch.pid) - before) / (calls + 1) / (size / 2**30)
    return row | {"cpu_s_per_gib": row["cpu_s_per_gib"] + switch_cpu, "switch_cpu_s_per_gib": switch_cpu}


def on_links(workers: int) -> Callable[[ExitStack, Setup], dict[str, Run]]:
    """Contenders in namespaces with links of a limited rate."""

    def contenders(stack: ExitStack, setup: Setup) -> dict[str, Run]:
        star = stack.enter_context(namespaces.Star(workers, LINK_RATE))
        crew = stack.enter_context(Crew())
        # `ip netns exec` becomes the program, so that this is the switch's own process.
        # Like the others: without keys.
        at = f"{star.switch_address}:{SWITCH_PORT}"
        switch = crew.start([*star.inside("switch"), str(fanin_program()), "switch", "--listen", at, "--open", "--packets", "none"])
        prefixes = [star.inside(rank) for rank in range(workers)]
        found: dict[str, Run] = {
            RAW: lambda: plain_udp(star),
            RAW_TOGETHER: lambda: plain_udp_together(star),
            UDP: lambda: fanin_on_links(star, switch, LARGE, LARGE_CALLS),
        }
        if setup.has("gloo"):
            master, device = star.worker_address(0), namespaces.INTERFACE
            found[GLOO] = lambda: gloo.run(workers, LARGE, LARGE_CALLS, prefixes, master, device, TIMEOUT_S)
        return found

    return contenders


def links_obstacle() -> str | None:
    """Why links with a rate cannot be measured here."""
    reason = namespaces.obstacle()
    if reason is None and subprocess.run([str(fanin_program()), "switch", "--help"], capture_output=True, check=False).returncode != 0:
        reason = "this build of fanin has no `fanin switch`"
    return reason


def links_case(workers: int) -> Case:
    """The case with so many namespaces."""
    return Case(
        f"links{workers}",
        f"{workers} namespaces, {LINK_RATE} each way, 64 MiB of float32",
        on_links(workers),
        [
            Goal("rate over plain UDP's on the same links", "algbw_mb_s", UDP, RAW, ">=", 0.95),
            Goal("rate over that of plain UDP from and to all workers at once", "algbw_mb_s", UDP, RAW_TOGETHER),
            Goal("CPU seconds per GiB over those of plain UDP from and to all workers at once", "cpu_s_per_gib", UDP, RAW_TOGETHER),
            Goal("rate over gloo's", "algbw_mb_s", UDP, GLOO),
            Goal("CPU seconds per GiB over gloo's", "cpu_s_per_gib", UDP, GLOO),
        ],
        links_obstacle,
    )


CASES = [
    Case(
        "memory",
        "4 workers on loopback without limits, 64 MiB of float32",
        on_loopback(LARGE, LARGE_CALLS, [UDP, UDP_IN_PLACE, MEMORY, MEMORY_IN_PLACE, GLOO, MPI_MEMORY, MPI_TCP]),
        [
            Goal("UDP: rate over gloo's", "algbw_mb_s", UDP, GLOO, ">=", 1.5),
            Goal("UDP in place: rate over gloo's", "algbw_mb_s", UDP_IN_PLACE, GLOO, ">=", 1.5),
            Goal("shared memory: rate over gloo's", "algbw_mb_s", MEMORY, GLOO, ">=", 4.0),
            Goal("shared memory in place: rate over gloo's", "algbw_mb_s", MEMORY_IN_PLACE, GLOO, ">=", 4.0),
            Goal("UDP: rate over Open MPI's by TCP", "algbw_mb_s", UDP, MPI_TCP),
            Goal("shared memory: rate over Open MPI's", "algbw_mb_s", MEMORY, MPI_MEMORY),
            Goal("UDP: CPU seconds per GiB over gloo's", "cpu_s_per_gib", UDP, GLOO),
            Goal("shared memory: CPU seconds per GiB over gloo's", "cpu_s_per_gib", MEMORY, GLOO),
        ],
    ),
    Case(
        "small",
        "4 workers on this host, 4 KiB of float32",
        on_loopback(SMALL, SMALL_CALLS, [MEMORY, MPI_MEMORY]),
        [Goal("shared memory: time over Open MPI's", "time_us", MEMORY, MPI_MEMORY, "<=", 2.0)],
    ),
    Case(
        "garbage",
        f"{GARBAGE_WORLD} workers at a switch on loopback, 64 MiB of float32, with garbage for its port",
        beside_garbage,
        [
            Goal("rate beside garbage over rate without", "algbw_mb_s", GARBAGE, QUIET),
            Goal("the switch's CPU seconds per GiB beside garbage over those without", "switch_cpu_s_per_gib", GARBAGE, QUIET),
        ],
        remarks=told_of_garbage,
    ),
    Case(
        "flood",
        f"{GARBAGE_WORLD} workers at a switch on loopback, 64 MiB of float32 in packets with keys, with a flood for its port",
        beside_flood,
        [
            Goal("rate while flooded over rate with the flood elsewhere", "algbw_mb_s", FLOOD, ELSEWHERE, ">=", 0.9),
            Goal("the switch's CPU seconds per GiB while flooded over those without", "switch_cpu_s_per_gib", FLOOD, ELSEWHERE),
        ],
        remarks=told_of_flood,
    ),
    links_case(4),
    links_case(8),
]


def cpu_ticks(stat: str) -> tuple[int, int]:
    """Idle and all ticks of all cores since the start of the machine, from the text of /proc/stat."""
    fields = [int(word) for word in stat.splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def idle_share(before: str, after: str) -> float:
    """The share of the time between two looks at /proc/stat in which cores were idle."""
    (idle_a, all_a), (idle_b, all_b) = cpu_ticks(before), cpu_ticks(after)
    return (idle_b - idle_a) / (all_b - all_a) if all_b > all_a else 0.0


def observed(run: Run) -> dict:
    """One measurement, with what else went on on the machine. Wrong elements make it worthless."""
    load = os.getloadavg()[0]
    before = Path("/proc/stat").read_text(encoding="ascii")
    row = run()
    after = Path("/proc/stat").read_text(encoding="ascii")
    if row.get("wrong"):
        raise Failed(f"{row['wrong']} elements are wrong")
    return row | {"idle_share": idle_share(before, after), "load_average": load}


def take_turns(
    contenders: dict[str, Run], rounds: int, tell: Callable[[str], None]
) -> tuple[dict[str, list[dict]], dict[str, str]]:
    """Runs every contender in each round. One that fails is left out from then on, and told with its reason."""
    results: dict[str, list[dict]] = {name: [] for name in contenders}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        # From either end: whatever changes slowly hits all.
        for name in list(contenders) if turn % 2 == 0 else reversed(contenders):
            if name in failed:
                continue
            try:
                row = observed(contenders[name])
            except Failed as error:
                failed[name] = str(error)
                tell(f"  {name}: failed: {error}")
                continue
            results[name].append(row)
            tell(f"  {name}: {row['algbw_mb_s']:,.1f} MB/s, load average {row['load_average']:.1f}, idle {row['idle_share']:.0%}")
    return {name: rows for name, rows in results.items() if name not in failed}, failed


@dataclass(frozen=True)
class Ratio:
    """How a goal turned out."""

    goal: Goal
    median: float
    lowest: float
    highest: float

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None where nothing was asked for."""
        return {">=": self.median >= self.goal.bound, "<=": self.median <= self.goal.bound}.get(self.goal.sense)


def ratio(goal: Goal, results: dict[str, list[dict]]) -> Ratio | None:
    """The ratio of a goal by rounds; None where one of the two was not measured."""
    pairs = zip(results.get(goal.ours, []), results.get(goal.theirs, []), strict=False)
    each = [ours[goal.key] / theirs[goal.key] for ours, theirs in pairs if theirs[goal.key] > 0]
    return Ratio(goal, statistics.median(each), min(each), max(each)) if each else None


def table(results: dict[str, list[dict]]) -> list[str]:
    """Medians of all contenders."""
    lines = [f"  {'':<24}{'time, ms':>12}{'MB/s':>10}{'lowest to highest':>22}{'CPU-s per GiB':>15}{'idle':>7}{'load':>7}"]
    for name, rows in results.items():
        median = {key: statistics.median(row[key] for row in rows) for key in ("algbw_mb_s", "cpu_s_per_gib", "idle_share", "load_average")}
        times = [row["time_us"] / 1e3 for row in rows if "time_us" in row]
        spent = f"{statistics.median(times):,.3f}" if times else ""
        rates = [row["algbw_mb_s"] for row in rows]
        spread = f"{min(rates):,.1f} to {max(rates):,.1f}"
        lines.append(
            f"  {name:<24}{spent:>12}{median['algbw_mb_s']:>10,.1f}{spread:>22}{median['cpu_s_per_gib']:>15.2f}"
            f"{median['idle_share']:>7.0%}{median['load_average']:>7.1f}"
        )
    return lines


def verdicts(goals: Sequence[Goal], results: dict[str, list[dict]]) -> list[str]:
    """A line for each ratio."""
    lines = []
    for goal in goals:
        found = ratio(goal, results)
        if found is None:
            continue
        asked = "" if found.reached is None else f", goal {goal.sense} {goal.bound:g}: {'reached' if found.reached else 'missed'}"
        lines.append(f"  {goal.title}: {found.median:.2f} ({found.lowest:.2f} to {found.highest:.2f}){asked}")
    return lines


def run_case(case: Case, setup: Setup, rounds: int) -> dict:
    """Measures one case and prints it."""
    print(f"{case.title}:", flush=True)
    reason = case.obstacle()
    if reason is not None:
        print(f"  skipped: {case.name} because {reason}", flush=True)
        return {"name": case.name, "skipped": reason}
    with ExitStack() as stack:
        contenders = case.contenders(stack, setup)
        results, failed = take_turns(contenders, rounds, lambda text: print(text, file=sys.stderr, flush=True))
    lines = [*table(results), *verdicts(case.goals, results), *case.remarks(results), *(f"  failed: {name}: {why}" for name, why in failed.items())]
    print("\n".join(lines), flush=True)
    ratios = [ratio(goal, results) for goal in case.goals]
    summary = [
        {"title": found.goal.title, "median": found.median, "lowest": found.lowest, "highest": found.highest, "reached": found.reached}
        for found in ratios
        if found is not None
    ]
    return {"name": case.name, "title": case.title, "runs": results, "failed": failed, "ratios": summary}


def prepare(cases: Sequence[Case]) -> Setup:
    """Installs the peers that are needed, as far as that is allowed."""
    setup = Setup()
    peers = {"gloo": gloo.obstacle, "openmpi": openmpi.obstacle}
    needed = {"memory": ["gloo", "openmpi"], "small": ["openmpi"], "garbage": [], "flood": []}
    for peer in sorted({peer for case in cases for peer in needed.get(case.name, ["gloo"])}):
        reason = peers[peer]()
        if reason is not None:
            setup.skipped[peer] = reason
            print(f"skipped: {peer} because {reason}", flush=True)
    return setup


def end_in_order(_number: int, _frame: object) -> None:
    """SIGTERM leaves as little behind as Ctrl-C."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    headline, _, story = __doc__.partition("\n\n")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=headline, epilog=story, formatter_class=shape)
    parser.add_argument("--rounds", type=int, default=3, help="how many times each one runs (default: 3)")
    parser.add_argument("--prepare", action="store_true", help="only install and compile the peers")
    parser.add_argument("--out", type=Path, help="also write all runs to this JSON file")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"measure only these: {', '.join(case.name for case in CASES)}")
    options = parser.parse_args(arguments)
    unknown = set(options.cases) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(case.name for case in CASES)}")
    if options.rounds < 1:
        parser.error("--rounds: expected at least 1")
    if not fanin_program().exists():
        parser.error(f"{fanin_program()} is missing: `cargo build --profile dist -p fanin`")
    signal.signal(signal.SIGTERM, end_in_order)
    chosen = [case for case in CASES if not options.cases or case.name in options.cases]
    try:
        setup = prepare(chosen)
        if options.prepare:
            return 0
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the first run, {options.rounds} rounds", flush=True)
        measured = [run_case(case, setup, options.rounds) for case in chosen]
    except namespaces.NoNetwork as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what was set up is removed", file=sys.stderr)
        return 130
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"cores": os.cpu_count(), "skipped": setup.skipped, "cases": measured}, indent=2) + "\n")
    ours_failed = any(name.startswith("Fanin") or name in {RAW, RAW_TOGETHER} for case in measured for name in case.get("failed", {}))
    return 1 if ours_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
