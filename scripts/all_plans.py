#!/usr/bin/env python3
"""Makes the plans of `experiments/all`: all systems on the same networks, one axis a folder.

Usage: all_plans.py [--check] [AXIS ...]

Without AXIS all plans are written. With --check nothing is written, and a plan that differs from what is made is an error. A system is
one line of SYSTEMS: it is then a series of every axis that it can run on. Python 3.11's standard library only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "experiments" / "all"


@dataclass(frozen=True)
class System:
    """A series of the axes: its name, the keys of its job, and what it can run on."""

    name: str
    keys: Mapping[str, object]
    #: It sums at some switches and forwards at the others (`network.aggregating`).
    partial: bool = False
    #: Its jobs share a number of aggregators a switch (`network.aggregators`).
    shares: bool = False
    #: It goes on without a spine that is gone for good, whatever its seed.
    survives: bool = False
    #: It sums the gradients of a workload.
    steps: bool = True
    #: It differs from another one only where packets are lost.
    lossy: bool = False
    #: It is meant for dense vectors. What is not is only a series of axes that name it.
    dense: bool = True


#: All systems that reduce dense vectors on leaves and spines. The hosts' own come first: the ring is what the others are held against.
SYSTEMS = (
    System("ring", {"system": "ring"}, partial=True, shares=True, survives=True),
    System("doubling", {"system": "doubling", "density": 1.0}, survives=True, dense=False),
    System("parameter servers", {"system": "ps", "servers": 0}, survives=True),
    System("1 tree", {"system": "tree", "trees": 1}, partial=True),
    System("4 trees", {"system": "tree", "trees": 4}, partial=True),
    System("SHARP", {"system": "sharp", "mode": "streaming"}),
    System("SwitchML", {"system": "switchml"}, shares=True),
    System("ATP", {"system": "atp", "servers": 4}, partial=True, shares=True, survives=True),
    System("A2TP", {"system": "a2tp", "servers": 4}, partial=True, shares=True, survives=True),
    System("PANAMA", {"system": "panama", "trees": 4}, partial=True),
    System("NetReduce", {"system": "netreduce"}),
    System("NetReduce, cards", {"system": "netreduce", "recovery": "cards"}, lossy=True),
    System("Rina", {"system": "rina"}, partial=True, survives=True),
    System("Flare", {"system": "flare", "density": 1.0}, steps=False),
    System("Canary", {"system": "canary"}, shares=True, survives=True),
)

NETWORK: Mapping[str, object] = {
    "shape": "fat-tree",
    "leaves": 8,
    "hosts_per_leaf": 8,
    "spines": 8,
    "rate": "100Gb/s",
    "latency": "300ns",
    "ecn": "80kB",
}
JOB: Mapping[str, object] = {"system": "ring", "workers": 60, "placement": "random", "message": "4MiB", "payload": "1KiB"}
#: Other traffic of the hosts that do not reduce.
OTHERS: Mapping[str, object] = {"pattern": "uniform", "hosts": "rest", "message": "64KiB", "load": 0.75}

Place = Mapping[str, object]

LOSSY = '[[faults.links]]\nlinks = "all"\nloss = 0.0\n'


@dataclass(frozen=True)
class Axis:
    """A plan: what it is about, how it differs from the common network and job, and what it varies."""

    about: str
    title: str
    sweep: Mapping[str, Sequence[object] | Mapping[str, Place]]
    network: Mapping[str, object] = field(default_factory=dict)
    job: Mapping[str, object] = field(default_factory=dict)
    traffic: Mapping[str, object] | None = None
    faults: str = ""
    needs: str = ""
    repetitions: int = 5
    time_limit: str = ""
    shown: str = "goodput_gbps"
    #: What pictures call it.
    short: str = ""
    kind: str = "lines"
    #: Only these systems; all where it is empty.
    only: Sequence[str] = ()
    #: Not these systems; its text says why.
    excluded: Sequence[str] = ()
    #: Keys that a system has only on this axis.
    own: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    #: Systems that only this axis has: others of SYSTEMS with another key.
    more: Sequence[System] = ()
    #: Keys of the common job that this one has not.
    without: Sequence[str] = ()

    def systems(self) -> list[System]:
        """The systems that can run on the axis."""
        able = [one for one in SYSTEMS if (not self.needs or getattr(one, self.needs)) and (self.faults == LOSSY or not one.lossy)]
        wanted = [one for one in able if (one.name in self.only if self.only else one.dense)]
        return [*(one for one in wanted if one.name not in self.excluded), *self.more]


def leaves(count: int) -> list[str]:
    """The first leaves of the common network."""
    return [f"leaf{index}" for index in range(count)]


def spines(count: int) -> list[str]:
    """Its first spines."""
    return [f"spine{index}" for index in range(count)]


def choice(key: str, values: Sequence[object]) -> dict[str, Place]:
    """Places by their values, for people."""
    return {str(value): {key: value} for value in values}


GONE = '[[faults.timed]]\nkind = "switch-down"\nswitch = "spine0"\nfrom = "20us"\nuntil = "10s"\n'

#: What conclusions hang on, one assumption at a time.
ASSUMPTIONS: Mapping[str, Place] = {
    "as on the other axes": {},
    "adaptive routing": {"network.routing": "adaptive", "network.background_routing": "ecmp"},
    "window 64": {"jobs.0.window": 64},
    "others send 1 MiB": {"traffic.0.message": "1MiB"},
    "lossless, input-queued": {"network.lossless": {"model": "input-queued", "input": "16KiB", "output": "16KiB"}},
    "marks from 20 kB": {"network.ecn": "20kB"},
    "links of 2 us": {"network.latency": "2us"},
    "hosts late by up to 100 us": {"jobs.0.start_skew": "100us"},
    "switches add at 25 Gb/s": {"network.hardware": {"aggregation_rate": "25Gb/s"}},
}

#: The same for short vectors, on an idle network.
ASSUMPTIONS_SHORT: Mapping[str, Place] = {
    "as on the other axes": {},
    "links of 2 us": {"network.latency": "2us"},
    "links of 50 ns": {"network.latency": "50ns"},
    "payload 256 B": {"jobs.0.payload": "256B"},
    "payload 4 KiB": {"jobs.0.payload": "4KiB"},
    "hosts late by up to 20 us": {"jobs.0.start_skew": "20us"},
    "switches add at 10 Gb/s": {"network.hardware": {"aggregation_rate": "10Gb/s"}},
}

#: And where packets are lost.
ASSUMPTIONS_LOSS: Mapping[str, Place] = {
    "as on the other axes": {},
    "vectors of 256 KiB": {"jobs.0.message": "256KiB"},
    "timers of 1 ms and more": {"jobs.0.rto_min": "1ms"},
    "window 64": {"jobs.0.window": 64},
}

#: And where jobs share the memory of switches.
ASSUMPTIONS_JOBS: Mapping[str, Place] = {
    "as on the other axes": {},
    "256 aggregators": {"network.aggregators": 256},
    "4,096 aggregators": {"network.aggregators": 4096},
    "32,768 aggregators": {"network.aggregators": 32768},
    "in step": {"jobs.0.start_skew": "0us"},
    "late by up to 200 us": {"jobs.0.start_skew": "200us"},
    "window 64": {"jobs.0.window": 64},
    "32 workers a job": {"jobs.0.workers": 32},
    "adaptive routing": {"network.routing": "adaptive"},
}

#: Steps of training: lengths, times of computing and of links, and timers are scaled alike; packets are not.
LLAMA: Place = {
    "jobs.0.workload": {
        "model": "llama3-70b",
        "dp": 15,
        "tp": 8,
        "pp": 4,
        "micro_batches": 8,
        "sharding": "ddp",
        "bucket": "160MB",
        "ranks_per_host": 8,
    },
    "jobs.0.scale": 0.0005,
    "jobs.0.local_rate": "3.6Tb/s",
    "jobs.0.local_latency": "0.5ns",
}
MIXTRAL: Place = {
    "jobs.0.workload": {
        "model": "mixtral-8x7b",
        "dp": 16,
        "ep": 8,
        "tp": 8,
        "pp": 2,
        "micro_batches": 4,
        "sharding": "ddp",
        "bucket": "160MB",
        "ranks_per_host": 8,
    },
    "jobs.0.scale": 0.0005,
    "jobs.0.local_rate": "3.6Tb/s",
    "jobs.0.local_latency": "0.5ns",
}
#: A card for the eight GPUs of a host. Queues that packets find marked are eight times as long in time, and so must timers be.
ONE_CARD: Place = {"network.rate": "400Gb/s", "jobs.0.rto_initial": "16us", "jobs.0.rto_min": "16us"}
RESNET: Place = {
    "jobs.0.workload": {"model": "resnet50", "dp": 60, "gpu": "v100", "ranks_per_host": 1, "sharding": "ddp"},
    "jobs.0.scale": 0.02,
    "network.latency": "10ns",
    "jobs.0.payload": "1KiB",
    "jobs.0.window": 64,
    "jobs.0.rto_initial": "100us",
    "jobs.0.rto_min": "100us",
}

AXES: Mapping[str, Axis] = {
    "sizes": Axis(
        "By the length of the vector, on an idle network.",
        "Goodput by the length of the vector, 60 of 64 hosts",
        {"jobs.0.message": ["64B", "1KiB", "16KiB", "256KiB", "1MiB", "4MiB"]},
        short="length of the vector",
    ),
    "long": Axis(
        "The longest vectors, in packets of 4 KiB. Without Flare, whose packets have elements: 64 MiB take it three minutes.",
        "Goodput of long vectors, 60 of 64 hosts, packets of 4 KiB",
        {"jobs.0.message": ["64MiB", "1GiB"]},
        job={"payload": "4KiB"},
        excluded=("Flare",),
        more=(System("Canary, window 32", {"system": "canary", "window": 32}),),
        kind="bars",
    ),
    "congestion": Axis(
        "Beside other traffic: half of the hosts reduce, the others send to random ones at a share of their links' rate.",
        "Goodput by the load of other traffic, 32 of 64 hosts, 4 MiB",
        {
            "load": {
                "0 %": {"traffic.0.enabled": False},
                **{f"{load} %": {"traffic.0.load": load / 100} for load in (10, 25, 50, 75, 95)},
            }
        },
        job={"workers": 32},
        traffic=OTHERS,
        short="load of other traffic",
    ),
    "congestion_2to1": Axis(
        "Beside other traffic where leaves have half as many links up as hosts: four spines.",
        "Goodput by the load of other traffic, leaves oversubscribed 2:1",
        {
            "load": {
                **{f"{load} %": {"traffic.0.load": load / 100} for load in (50, 95)},
            }
        },
        network={"spines": 4},
        job={"workers": 32},
        traffic=OTHERS,
        more=(
            System("Canary, window 64", {"system": "canary", "window": 64}),
            System("4 trees, window 64", {"system": "tree", "trees": 4, "window": 64}),
            System("Canary, A2TP's windows", {"system": "canary", "windows": "a2tp"}),
        ),
        short="leaves 2:1",
    ),
    "jobs": Axis(
        "Jobs of eight workers that share hosts and 1,024 aggregators of 1 KiB in each switch; workers begin up to 20 us late.",
        "Goodput of a job by the number of jobs, 8 of 64 hosts each, 1 MiB",
        {"jobs.0.copies": [1, 4, 16, 64]},
        network={"aggregators": 1024},
        job={"workers": 8, "message": "1MiB", "jobs_per_host": 64, "start_skew": "20us"},
        needs="shares",
        short="number of jobs",
    ),
    "loss": Axis(
        "Each link loses packets with the same probability.",
        "Goodput by the probability of loss per link, 60 of 64 hosts, 4 MiB",
        {"faults.links.0.loss": [0.0, 0.000001, 0.00001, 0.0001, 0.001, 0.01]},
        faults=LOSSY,
        time_limit="10s",
        short="loss per link",
    ),
    "spine_gone": Axis(
        "One of four spines dies 20 us after the beginning, for good. Systems that go on without it.",
        "Time when a spine dies, 60 of 64 hosts, 4 MiB",
        {"spine": {"all there": {"faults.timed.0.from": "9s"}, "one gone": {}}},
        network={"spines": 4},
        job={"patience": "1s"},
        faults=GONE,
        needs="survives",
        more=(
            System("Canary, window 64", {"system": "canary", "window": 64}),
            System("Canary, learns timeouts", {"system": "canary", "timeout": "adaptive"}),
        ),
        shown="completion_us",
        kind="bars",
        short="a dead spine",
    ),
    "partial": Axis(
        "By how many switches sum: leaves first, then spines. Systems that can do with some.",
        "Goodput by the share of switches that sum, 60 of 64 hosts, 4 MiB",
        {
            "switches": {
                "6 %": {"network.aggregating": leaves(1)},
                "12.5 %": {"network.aggregating": leaves(2)},
                "25 %": {"network.aggregating": leaves(4)},
                "50 %": {"network.aggregating": leaves(8)},
                "75 %": {"network.aggregating": leaves(8) + spines(4)},
                "100 %": {"network.aggregating": leaves(8) + spines(8)},
            }
        },
        needs="partial",
        short="switches that sum",
    ),
    "partial_none": Axis(
        "No switch sums. Systems that can do without.",
        "Goodput where no switch sums, 60 of 64 hosts, 256 KiB",
        {"switches": {"0 %": {"network.aggregating": []}}},
        job={"message": "256KiB"},
        only=("ring", "doubling", "parameter servers", "ATP", "A2TP", "Rina"),
        kind="bars",
    ),
    "hosts": Axis(
        "By the number of hosts: leaves of 16, with eight spines; nine of ten hosts reduce.",
        "Time by the number of leaves of 16 hosts, 256 KiB",
        {"network.leaves": [4, 16, 64]},
        network={"leaves": 4, "hosts_per_leaf": 16},
        job={"workers": "90%", "message": "256KiB"},
        shown="completion_us",
        short="leaves of 16 hosts",
    ),
    "hosts_8192": Axis(
        "8,192 hosts in 512 leaves of 16, half of which reduce.",
        "Time on 4,096 of 8,192 hosts",
        {"jobs.0.message": ["64KiB"]},
        network={"leaves": 512, "hosts_per_leaf": 16},
        job={"workers": "50%"},
        shown="completion_us",
        kind="bars",
    ),
    "oversubscription": Axis(
        "Fewer and fewer links up: eight hosts a leaf, and one to eight spines.",
        "Goodput by oversubscription, 60 of 64 hosts, 4 MiB",
        {
            "oversubscription": {f"{8 // count}:1": {"network.spines": count} for count in (8, 4, 2, 1)},
        },
        short="oversubscription",
    ),
    "workloads": Axis(
        "A training step by which system sums its gradients: computing and sums overlap as the frameworks have it.",
        "Time of a scaled training step, 64 hosts",
        {
            "step": {
                "Llama 3 70B, 3.2 Tb/s": LLAMA,
                "Llama 3 70B, 400 Gb/s": {**LLAMA, **ONE_CARD},
                "Mixtral 8x7B, 3.2 Tb/s": MIXTRAL,
                "Mixtral 8x7B, 400 Gb/s": {**MIXTRAL, **ONE_CARD},
                "ResNet-50, 100 Gb/s": {**RESNET, "network.rate": "100Gb/s"},
                "ResNet-50, 25 Gb/s": {**RESNET, "network.rate": "25Gb/s"},
            }
        },
        network={"rate": "3.2Tb/s", "latency": "0.25ns"},
        job={
            "placement": "spread",
            "payload": "8KiB",
            "window": 16,
            "rto_initial": "2us",
            "rto_min": "2us",
        },
        needs="steps",
        repetitions=3,
        shown="iteration_us",
        kind="bars",
        own={"Canary": {"descriptors": 4096}},
        without=("workers", "message"),
        short="training step",
    ),
    "own_parameters": Axis(
        "Systems with other parameters of their own, where these matter: 32 of 64 hosts reduce.",
        "Goodput by the parameters of systems, 32 of 64 hosts, 4 MiB",
        {
            "where": {
                "idle": {"traffic.0.enabled": False},
                "load of 50 %, leaves 2:1": {"network.spines": 4},
                "leaves 8:1": {"traffic.0.enabled": False, "network.spines": 1},
                "loss of 1e-3": {"traffic.0.enabled": False, "faults.links.0.loss": 0.001},
            }
        },
        job={"workers": 32},
        traffic={**OTHERS, "load": 0.5},
        faults=LOSSY,
        only=("ring", "4 trees", "ATP", "A2TP", "NetReduce", "Rina", "Canary"),
        more=(
            System("ring, any order", {"system": "ring", "order": "placement"}),
            System("ring, window 64", {"system": "ring", "window": 64}),
            System("4 trees, window 64", {"system": "tree", "trees": 4, "window": 64}),
            System("NetReduce, window 64", {"system": "netreduce", "window": 64}),
            System("Canary, window 64", {"system": "canary", "window": 64}),
            System("Canary, learns timeouts", {"system": "canary", "timeout": "adaptive"}),
            System("Canary, knows how many come", {"system": "canary", "fan_in": "known"}),
            System("Canary, knows, window 64", {"system": "canary", "fan_in": "known", "window": 64}),
            System("Canary, A2TP's windows", {"system": "canary", "windows": "a2tp"}),
            System("Canary, same bits", {"system": "canary", "reproducible": "element"}),
            # As many workers on each leaf: placed at random they would not be.
            System("Canary in racks, rings between", {"system": "canary", "placement": "spread", "across": "ring"}),
            System("Canary in racks, Canary between", {"system": "canary", "placement": "spread", "across": "canary"}),
            System("ATP, 1 server", {"system": "atp"}),
            System("A2TP, 1 server", {"system": "a2tp"}),
        ),
        kind="bars",
    ),
    "sensitivity": Axis(
        "One assumption at a time made otherwise, where half of the hosts send other traffic at half of their links' rate.",
        "",
        {"assumption": ASSUMPTIONS},
        job={"workers": 32},
        traffic={**OTHERS, "load": 0.5},
        only=("ring", "1 tree", "4 trees", "A2TP", "PANAMA", "NetReduce", "Rina", "Canary"),
        repetitions=3,
    ),
    "sensitivity_short": Axis(
        "One assumption at a time made otherwise, for short vectors on an idle network.",
        "",
        {"assumption": ASSUMPTIONS_SHORT},
        job={"message": "64KiB"},
        more=(
            System("ring, 2 us a step", {"system": "ring", "step_overhead": "2us"}),
            System("Canary, waits 250 ns", {"system": "canary", "timeout": "250ns"}),
            System("Canary, knows how many come", {"system": "canary", "fan_in": "known"}),
        ),
        repetitions=3,
        shown="completion_us",
    ),
    "sensitivity_loss": Axis(
        "One assumption at a time made otherwise, where packets are lost.",
        "",
        {"assumption": ASSUMPTIONS_LOSS, "faults.links.0.loss": [0.00001, 0.0001, 0.001]},
        faults=LOSSY,
        only=("ring", "SwitchML", "NetReduce", "NetReduce, cards", "Rina", "Canary"),
        repetitions=3,
    ),
    "sensitivity_jobs": Axis(
        "One assumption at a time made otherwise, for 16 jobs that share 1,024 aggregators a switch.",
        "",
        {"assumption": ASSUMPTIONS_JOBS},
        network={"aggregators": 1024},
        job={"workers": 8, "message": "1MiB", "jobs_per_host": 64, "start_skew": "20us", "copies": 16},
        needs="shares",
        repetitions=3,
    ),
}


def written(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {written(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(written(one) for one in value) + "]"
    return f"{value:.6f}".rstrip("0") if isinstance(value, float) and 0 < value < 0.001 else str(value)


def table(name: str, keys: Mapping[str, object]) -> str:
    """A table of a plan."""
    return f"{name}\n" + "".join(f"{key} = {written(value)}\n" for key, value in keys.items())


def dotted(keys: Mapping[str, object]) -> str:
    """An inline table of keys with dots, in quotes."""
    inside = ", ".join(f'"{key}" = {written(value)}' for key, value in keys.items())
    return f"{{ {inside} }}" if inside else "{}"


def sweeps(axis: Axis) -> str:
    """What the axis varies: named places, and lists of values."""
    named = [
        f"[sweep.{key}]\n" + "".join(f'"{place}" = {dotted(keys)}\n' for place, keys in places.items())
        for key, places in axis.sweep.items()
        if isinstance(places, Mapping)
    ]
    lists = {f'"{key}"': list(values) for key, values in axis.sweep.items() if not isinstance(values, Mapping)}
    return "\n".join([*named, *([table("[sweep]", lists)] if lists else [])])


def plan(name: str) -> str:
    """The plan of an axis."""
    axis = AXES[name]
    head = f"# All systems, {name}. {axis.about}\n# scripts/all_plans.py makes this file.\n"
    parts = [head + ("" if axis.title else "\n# Too many bars for a picture; the table tells.\nplot = []\n")]
    parts.append(table("[network]", {**NETWORK, **axis.network}))
    parts.append(table("[[jobs]]", {key: value for key, value in {**JOB, **axis.job}.items() if key not in axis.without}))
    if axis.traffic is not None:
        parts.append(table("[[traffic]]", axis.traffic))
    if axis.faults:
        parts.append(axis.faults)
    for system in axis.systems():
        keys = {f"jobs.0.{key}": value for key, value in {**system.keys, **axis.own.get(system.name, {})}.items()}
        parts.append(f'[[series]]\nname = "{system.name}"\nset = {dotted(keys)}\n')
    parts.append(sweeps(axis))
    limit = {"time_limit": axis.time_limit} if axis.time_limit else {}
    parts.append(table("[run]", {"seed": 1, "repetitions": axis.repetitions, **limit}))
    if axis.title:
        first = next(iter(axis.sweep))
        parts.append(table("[[plot]]", {"name": name, "title": axis.title, "kind": axis.kind, "x": first, "y": axis.shown}))
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes the plans of experiments/all.")
    parser.add_argument("axes", nargs="*", metavar="AXIS")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for name in options.axes or AXES:
        file = FOLDER / name / "plan.toml"
        text = plan(name)
        if options.check:
            if not file.exists() or file.read_text() != text:
                stale.append(str(file.relative_to(ROOT)))
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    if stale:
        print(f"{', '.join(stale)}: not what scripts/all_plans.py makes; run it", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
