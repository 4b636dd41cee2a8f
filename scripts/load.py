#!/usr/bin/env python3
"""One switch under load: many jobs at once, and jobs of many ranks, each rank a process, while somebody asks for metrics and health all the time.

Usage: load.py [--fanin PROGRAM] [--jobs 64x8] [--large 160,300] [--size 64KiB] [--calls 100] [--small] [--format table|json]

In each phase all ranks sum over UDP and check every element: `--jobs 64x8` is 64 jobs of 8 ranks at once, and each of `--large` one job alone.
The switch has its default limits. Ranks are nice (+10), since elsewhere they have machines of their own, and as root the switch and who asks come before
them where the scheduler shares the processors among sessions. Prints a row a phase: how
long /metrics and /healthz took (median, 99th percentile, longest), and what the switch had of memory, descriptors and threads before, at most and
after. Fails (exit 1) where a job was lost or a sum wrong, where not all ranks were there at once, where no answer came, or where descriptors,
threads or memory stay behind. How long answers took is printed and no reason to fail: that is a matter of the machine. `--small` is for tests. No
root. Python's standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from processes import Crew, Failed
from soak import HERE, free_ports

ROOT = Path(__file__).resolve().parent.parent
#: How long ranks wait for each other, and how long a phase may take: on a busy machine hundreds of processes take a while to begin.
TIMEOUT_S, PHASE_S = 600, 1_500.0
#: Seconds between questions, and between samples of the process.
ASK_EVERY_S, SAMPLE_EVERY_S = 0.05, 1.0
#: Nobody waits longer for metrics.
ANSWER_S = 60.0
#: How long a switch may take to give everything back, and what memory may stay with the allocator.
SETTLE_S, KEPT_KIB_MAX = 60.0, 64 << 10
#: Ranks are nice: elsewhere they have machines of their own.
NICE = ["nice", "-n", "10"]


@dataclass
class Sample:
    """What the switch's process has."""

    resident_kib: int
    descriptors: int
    threads: int


@dataclass
class Phase:
    """Jobs that run at once, and what the switch took."""

    jobs: int
    ranks: int
    before: Sample
    metrics_ms: list[float] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    after: Sample | None = None
    connections_most: int = 0
    sums: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def row(self) -> dict:
        """The figures."""

        def times(of: list[float]) -> list[float]:
            in_order = sorted(of)
            return [round(value, 1) for value in (statistics.median(in_order), in_order[int(len(in_order) * 0.99)], in_order[-1])] if of else []

        def three(name: str) -> list[int]:
            most = max((getattr(sample, name) for sample in self.samples), default=0)
            return [getattr(self.before, name), most, getattr(self.after, name) if self.after else 0]

        return {
            "jobs": self.jobs,
            "ranks": self.ranks,
            "ranks_at_once": self.connections_most,
            "sums": self.sums,
            "seconds": round(self.seconds, 1),
            "questions": len(self.metrics_ms) + len(self.health_ms),
            "longer_than_100_ms": sum(took > 100 for took in self.metrics_ms + self.health_ms),
            "metrics_ms": times(self.metrics_ms),
            "health_ms": times(self.health_ms),
            **{name: three(name) for name in ("resident_kib", "descriptors", "threads")},
            "faults": self.faults,
        }


class Switch:
    """The switch, seen from outside."""

    def __init__(self, crew: Crew, fanin: str) -> None:
        first = free_ports(2)
        self.control, self.http = f"{HERE}:{first}", first + 1
        self.process = crew.start([fanin, "switch", "--listen", self.control, "--http", f"{HERE}:{self.http}"])
        come_first(self.process.pid)
        crew.wait_until_it_says(self.process, "ranks join at", time.monotonic() + 60)

    def ask(self, path: str) -> tuple[float, str]:
        """Milliseconds until the whole answer was here, by a connection of its own, and what it says."""
        begin = time.monotonic()
        connection = http.client.HTTPConnection(HERE, self.http, timeout=ANSWER_S)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Connection": "close"})
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status != 200:
            raise Failed(f"{path} answers {answer.status}: {text}")
        return (time.monotonic() - begin) * 1e3, text

    def metric(self, name: str) -> float:
        """A metric without labels, or the sum of those that have some."""
        _, text = self.ask("/metrics")
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE))

    def sample(self) -> Sample:
        """What the process has now."""
        of = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (of / "status").read_text().splitlines())
        return Sample(int(status["VmRSS"].split()[0]), len(os.listdir(of / "fd")), int(status["Threads"]))


def keep_asking(switch: Switch, phase: Phase, over: threading.Event) -> None:
    """Asks for metrics and for health in turns, and looks at the process."""
    sampled = 0.0
    while not over.wait(ASK_EVERY_S):
        try:
            took, text = switch.ask("/metrics")
            phase.metrics_ms.append(took)
            phase.health_ms.append(switch.ask("/healthz")[0])
        except (OSError, Failed, http.client.HTTPException) as error:
            phase.faults.append(f"no answer: {error!r}")
            continue
        found = re.search(r"^fanin_switch_control_connections (\S+)", text, re.MULTILINE)
        phase.connections_most = max(phase.connections_most, int(float(found[1])) if found else 0)
        if time.monotonic() >= sampled + SAMPLE_EVERY_S:
            sampled = time.monotonic()
            phase.samples.append(switch.sample())


def come_first(session: int) -> None:
    """Where the scheduler shares the processors among sessions first, one of sixty has a sixtieth, whatever its processes' nice. Needs root."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text("-20")


def run_phase(crew: Crew, switch: Switch, options: argparse.Namespace, jobs: int, ranks: int) -> Phase:
    """All jobs of a phase from their start to their end, and until the switch has given everything back."""
    phase, over = Phase(jobs, ranks, switch.sample()), threading.Event()
    asks = threading.Thread(target=keep_asking, args=(switch, phase, over), daemon=True)
    asks.start()
    begin = time.monotonic()
    command = [*NICE, options.fanin, "bench", "allreduce", "--workers", str(ranks), "--switch", switch.control, "--transport", "udp"]
    # The last job is slower to begin than the first by what starting all others takes, so that all have calls to make for as long as that.
    command += ["--sizes", options.size, "--iterations", str(options.calls), "--timeout", f"{TIMEOUT_S}s", "--format", "json"]
    running = [crew.start(command, {"FANIN_JOB": f"load-{job}"}) for job in range(jobs)]
    for job in running:
        try:
            rows = json.loads(crew.finish(job, begin + PHASE_S).strip().splitlines()[-1])
            phase.sums += options.calls * len(rows)
            phase.faults.extend(f"wrong elements: {row}" for row in rows if row["wrong"])
        except (Failed, ValueError, KeyError, IndexError) as error:
            phase.faults.append(f"a job was lost: {error}")
    phase.seconds = time.monotonic() - begin
    over.set()
    asks.join(ANSWER_S)
    phase.after = settle(switch, phase)
    look_at(phase, switch)
    return phase


def settle(switch: Switch, phase: Phase) -> Sample:
    """Waits until the switch has no connection any more and no more descriptors and threads than before; what it has then."""
    end = time.monotonic() + SETTLE_S
    while True:
        sample = switch.sample()
        is_as_before = sample.descriptors <= phase.before.descriptors and sample.threads <= phase.before.threads
        if is_as_before and switch.metric("fanin_switch_control_connections") == 0 or time.monotonic() > end:
            return sample
        time.sleep(0.2)


def look_at(phase: Phase, switch: Switch) -> None:
    """Says what is a fault of a phase."""
    if phase.connections_most < phase.jobs * phase.ranks:
        phase.faults.append(f"{phase.connections_most} of {phase.jobs * phase.ranks} ranks were there at once: more --calls keep them longer")
    if not phase.metrics_ms or not phase.samples:
        phase.faults.append("nobody was answered")
    after, before = phase.after, phase.before
    if after is not None and (after.descriptors > before.descriptors or after.threads > before.threads):
        phase.faults.append(f"something has stayed: {before} before, {after} after")
    _, text = switch.ask("/metrics")
    failed = [line for line in re.findall(r"^fanin_switch_jobs_failed_total\{.*", text, re.MULTILINE) if not line.endswith(" 0")]
    memory = switch.metric("fanin_switch_memory_bytes")
    if failed or memory:
        phase.faults.append(f"the switch says that jobs have failed: {failed}; {memory:.0f} bytes are set aside")


def load(options: argparse.Namespace) -> list[Phase]:
    """All phases at one switch, the first one twice: what allocators keep for next time is there before the second."""
    jobs, ranks = (int(number) for number in options.jobs.split("x"))
    plan = [(jobs, ranks), (jobs, ranks), *((1, int(large)) for large in options.large.split(",") if large)]
    phases: list[Phase] = []
    with Crew() as crew:
        switch = Switch(crew, options.fanin)
        for one in plan:
            phases.append(run_phase(crew, switch, options, *one))
            print(json.dumps(phases[-1].row()), file=sys.stderr, flush=True)
        first, last = phases[0].after, phases[-1].after
        if first and last and last.resident_kib > first.resident_kib + KEPT_KIB_MAX:
            phases[-1].faults.append(f"memory has grown: {first.resident_kib} KiB after the first phase, {last.resident_kib} KiB after the last")
    return phases


def table(rows: list[dict]) -> str:
    """For people, as the documentation has it."""

    def cell(value: object) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    columns = [name for name in rows[0] if name != "faults"]
    lines = [columns, ["---"] * len(columns), *([cell(row[name]) for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fanin", default=str(ROOT / "target/release/fanin"), help="the program (target/release/fanin)")
    parser.add_argument("--jobs", default="64x8", help="jobs at once and ranks of each (64x8)")
    parser.add_argument("--large", default="160,300", help="ranks of jobs that run alone (160,300)")
    parser.add_argument("--size", default="64KiB", help="bytes of each sum (64KiB)")
    parser.add_argument("--calls", type=int, default=100, help="sums of each job (100)")
    parser.add_argument("--small", action="store_true", help="a few jobs and a job of a few ranks, for tests")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    options = parser.parse_args()
    if options.small:
        options.jobs, options.large, options.calls = "6x4", "24", 200
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    load_before = os.getloadavg()[0]
    come_first(os.getpid())
    phases = load(options)
    rows = [phase.row() for phase in phases]
    print(json.dumps(rows) if options.format == "json" else table(rows))
    print(f"{os.cpu_count()} processors, load {load_before:.1f} before", file=sys.stderr)
    faults = [fault for phase in phases for fault in phase.faults]
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
