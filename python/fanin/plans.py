"""Plans as typed objects: what :func:`fanin.simulate` runs, key by key.

Each class is a dictionary to Python and a set of known keys to type checkers: ``Job(system="tree", workers=8, message="1MiB")``.
Sizes, rates and times are texts with a unit (``"4MiB"``, ``"100Gb/s"``, ``"300ns"``) or plain numbers of bytes. Keys that are left out
have the program's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from ._systems import System, SystemKeys, Timeouts
from ._units import Amount, Bytes, Fraction, PacketRate, Rate, Time

__all__ = [
    "Delay",
    "Ends",
    "Faults",
    "Flow",
    "Hardware",
    "Job",
    "Limit",
    "LinkFaults",
    "Lossless",
    "Member",
    "Network",
    "Noise",
    "Plan",
    "Plot",
    "Processor",
    "Run",
    "Series",
    "Step",
    "TimedFault",
    "Timeouts",
    "Traffic",
]

Value: TypeAlias = Any

#: What a program from elsewhere has registered, by its ``name``, with keys of its own (docs/own-network.md).
Own: TypeAlias = Mapping[str, Any]


class _Lossless(TypedDict):
    model: Literal["output-queued", "input-queued"]
    input: Bytes


class Lossless(_Lossless, total=False):
    """Links with credits for finite buffers: nothing is dropped."""

    output: Bytes
    arbitration: Literal["first-come", "round-robin", "oldest-first"]
    made_packets: Literal["own-fifo", "input", "per-output"]
    channels: int


class _Processor(TypedDict):
    cores: int


class Processor(_Processor, total=False):
    """Cores of switches that aggregate, and what takes them time."""

    cores_per_block: int
    packet_time: Time
    rate: Rate
    pair_time: Time
    place_time: Time
    locks: bool
    memory: Bytes
    l1: Bytes
    cluster: int
    map: Literal["hash", "modulo", "skewed"]


#: Switches whose limits, links and ways are known.
HardwareName: TypeAlias = Literal[
    "unlimited", "tofino1", "tofino2", "xdp", "quantum", "quantum-2", "quantum-x800", "nvl72", "tomahawk-ultra", "spectrum-x"
]


class Hardware(TypedDict, total=False):
    """Limits of switches that aggregate, as a prototype has them: what is not given is that of the preset, or no limit."""

    preset: HardwareName
    elements: int
    recirculation: Rate
    pass_time: Time
    groups: int
    groups_per_pass: int
    scan_rate: int
    aggregation_rate: Rate
    memory: Bytes


class _Network(TypedDict):
    shape: Literal["star", "fat-tree", "fat-tree-3", "dragonfly", "machines", "rail-optimised", "file"]


class Network(_Network, total=False):
    """Hosts, switches, links, queues and load balancing. ``rate`` and ``latency`` are needed by every shape but ``file``."""

    rate: Rate
    latency: Time
    hosts: int
    leaves: int
    hosts_per_leaf: int
    spines: int
    parallel_links: int
    ports: int
    groups: int
    routers: int
    global_links: int
    hosts_per_router: int
    file: str
    machines: int
    per_machine: int
    machines_per_leaf: int
    cards: Literal["hosts", "machines"]
    nvls: bool
    planes: int
    intra_rate: Rate
    intra_latency: Time
    fabric_rate: Rate
    fabric_latency: Time
    global_rate: Rate
    global_latency: Time
    queue: Bytes
    trimming: Literal["hosts", "all"]
    lossless: Lossless
    processor: Processor
    hardware: HardwareName | Hardware
    ecn: Bytes
    nic_queue: Bytes
    frame_overhead: Bytes
    frame_min: Bytes
    routing: Literal["ecmp", "destination", "random", "flowlet", "adaptive", "drill", "conga", "minimal", "valiant", "ugal"] | Own
    background_routing: (
        Literal["ecmp", "destination", "random", "flowlet", "adaptive", "drill", "conga", "minimal", "valiant", "ugal"] | Own
    )
    flowlet_gap: Time
    aggregating: Literal["file"] | Sequence[str]
    adaptive_threshold: Fraction
    drill_samples: int
    drill_memory: int
    conga_time: Time
    conga_aging: Time
    aggregators: int
    slot_versions: int


class Delay(TypedDict, total=False):
    """A delay that is drawn for each late packet; which numbers it has depends on the distribution."""

    distribution: Literal["constant", "uniform", "exponential", "lognormal", "pareto"]
    value: Time
    mean: Time
    min: Time
    max: Time
    median: Time
    sigma: float
    shape: float


class Noise(TypedDict):
    """Packets that leave their host late."""

    probability: Fraction
    delay: Time | Delay | Own


class _Model(TypedDict):
    model: str


class Model(_Model, total=False):
    """A training step from a model's published sizes: the options of ``fanin workload``."""

    dp: int
    tp: int
    pp: int
    ep: int
    micro_batches: int
    micro_batch: int
    sequence: int
    sharding: Literal["ddp", "zero", "fsdp"]
    bucket: Bytes
    gradient: str
    sequence_parallel: bool
    recompute: Literal["none", "selective", "full"]
    virtual_stages: int
    scatter_gather: bool
    gpu: str
    utilisation: Fraction
    ranks_per_host: int
    set: Mapping[str, Any]


class _Workload(TypedDict):
    workload: Literal[1]
    ranks: int
    programs: Sequence[Mapping[str, Any]]


class Workload(_Workload, total=False):
    """A training step as data, with the keys of a workload's file (docs/workloads.md)."""

    name: str
    source: str
    ranks_per_host: int
    hosts: str
    iterations: int
    groups: Sequence[Mapping[str, Any]]
    blocks: Sequence[Mapping[str, Any]]


class _Job(TypedDict):
    system: System


class Job(_Job, SystemKeys, total=False):
    """One job, or several alike: the keys of every job, and those of its system. It has a ``message``, a ``model`` or a ``workload``."""

    collective: Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "barrier"]
    root_rank: int
    copies: int
    file: str
    workers: Amount
    servers: int | Sequence[int]
    server_placement: Literal["packed", "spread", "random", "near"]
    placement: Literal["random", "packed", "spread"] | Sequence[int]
    jobs_per_host: int
    message: Bytes
    payload: Bytes
    element: Literal["f32", "f64", "i32", "i64", "f16", "bf16", "i8", "i16", "u8"]
    reproducible: Literal["element"]
    operator: str
    indices: str
    operations: int
    model: Literal["resnet50", "vgg16", "alexnet", "resnet101", "inceptionv3", "lstm", "bert"]
    scale: Fraction
    iterations: int
    tensor: Bytes
    compute: Time
    compute_spread: Fraction
    start: Time
    start_skew: Time
    arrivals: Time
    crash: Time
    noise: Noise
    workload: str | Model | Workload
    groups: Mapping[str, str | Mapping[str, Any]]
    across: str | Mapping[str, Any]
    chunks: int
    local_rate: Rate
    local_latency: Time
    window: int | Literal["unlimited"]
    reliable: bool
    rto_initial: Time
    rto_min: Time
    patience: Time


class _Traffic(TypedDict):
    pattern: Literal["uniform", "derangement", "permutation", "incast"] | Own


class Traffic(_Traffic, total=False):
    """Background traffic."""

    enabled: bool
    receivers: int
    hosts: Literal["rest", "all"] | Amount | Sequence[int]
    message: Bytes
    payload: Bytes
    load: Fraction
    congestion: Literal["none", "dctcp"]
    rto_min: Time
    messages: int
    start: Time


class Member(TypedDict, total=False):
    """The host where a worker or a server of a job lives."""

    job: int
    rank: int
    server: int


class Step(TypedDict):
    """The rate of a flow from a time on."""

    at: Time
    rate: Rate


# Not by its class body: `from` is a word of Python.
_Flow = TypedDict("_Flow", {"from": str | Member, "to": str | Member})


class Flow(_Flow, total=False):
    """One host sends to another at a given rate, whatever becomes of its packets."""

    enabled: bool
    payload: Bytes
    rate: Rate
    start: Time
    until: Time
    steps: Sequence[Step]


_LimitFrom = TypedDict("_LimitFrom", {"from": Time}, total=False)


class Limit(_LimitFrom, total=False):
    """What hosts can do beside what their links can."""

    enabled: bool
    hosts: Literal["all", "workers", "servers"] | Sequence[int] | Member
    send: PacketRate
    receive: PacketRate
    rate: Rate
    receive_mark: int
    receive_queue: int
    until: Time


#: From one node to another, by name: ``{"from": "leaf0", "to": "spine1"}``.
Ends = TypedDict("Ends", {"from": str, "to": str})


class LinkFaults(TypedDict, total=False):
    """What links do to packets; probabilities are per packet and link."""

    links: Literal["all", "host-up", "host-down", "fabric"] | Ends
    kinds: Sequence[Literal["contribution", "aggregate", "control", "background"]]
    loss: Fraction
    corruption: Fraction
    duplication: Fraction
    reordering: Fraction
    delay: Time


class _TimedFault(TypedDict):
    kind: Literal["link-down", "switch-down", "host-stall", "host-dies"]


# Not by its class body: `from` is a word of Python.
_TimedFaultFrom = TypedDict("_TimedFaultFrom", {"from": Time}, total=False)


class TimedFault(_TimedFault, _TimedFaultFrom, total=False):
    """Something that fails at a time."""

    between: Sequence[str]
    switch: str
    host: str
    rank: int
    job: int
    until: Time


class Faults(TypedDict, total=False):
    """What is injected."""

    links: Sequence[LinkFaults]
    timed: Sequence[TimedFault]
    anti_replay: bool


class Run(TypedDict, total=False):
    """How points are run."""

    seed: int
    repetitions: int
    payload: Literal["census", "length", "elements"]
    time_limit: Time
    drain: bool
    steady: float | str
    memory_interval: Time
    series_interval: Time
    alone: bool
    expect: Literal["success", "failure"]


class Series(TypedDict):
    """Keys that are set together, under a name: ``Series(name="ring", set={"jobs.0.system": "ring"})``."""

    name: str
    set: Mapping[str, Value]


class _Plot(TypedDict):
    name: str
    title: str
    kind: Literal["bars", "lines", "cdf", "memory", "time", "steps"]


class Plot(_Plot, total=False):
    """One picture, for the program's folder of results."""

    x: str
    y: str
    only: Mapping[str, Value]


class _Plan(TypedDict):
    network: Network


class Plan(_Plan, total=False):
    """A plan. In ``sweep``, a key has a list of values, or a name has tables of keys that are set together."""

    jobs: Sequence[Job]
    traffic: Sequence[Traffic]
    flows: Sequence[Flow]
    limits: Sequence[Limit]
    faults: Faults
    series: Sequence[Series]
    sweep: Mapping[str, Sequence[Value] | Mapping[str, Mapping[str, Value]]]
    run: Run
    plot: Sequence[Plot]
