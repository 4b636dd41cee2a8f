"""Systems and their keys: made from their parameters in crates/systems by a test of crates/plan, python_types."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from ._units import Bytes, Fraction, Rate, Time

#: Names of all systems.
System: TypeAlias = Literal[
    "ring",
    "tree",
    "canary",
    "switchml",
    "atp",
    "a2tp",
    "panama",
    "sharp",
    "netreduce",
    "machines",
    "rina",
    "ps",
    "flare",
    "doubling",
    "exchange",
]


class Timeouts(TypedDict, total=False):
    """Canary's timeouts by level: at switches next to hosts, at others, and of a block at the switch of its leader."""

    leaf: Time
    spine: Time
    root: Time


class SystemKeys(TypedDict, total=False):
    """The keys of all systems."""

    # netreduce, machines
    additive: Rate
    # atp, a2tp, rina
    aggregating: int
    # atp, a2tp
    aggregators: int
    # a2tp
    aggregators_min: int
    # machines
    algorithm: Literal["flat-ring", "parallel-ring", "tencent", "parallel-netreduce"]
    # netreduce
    answer_min: Time
    # ring
    barrier: bool
    # flare
    coding: Literal["shortest", "pairs"]
    # a2tp
    col_only: bool
    # canary, a2tp
    collision_weight: Fraction
    # canary, a2tp
    collisions: Literal["places", "stragglers"] | Literal["round", "aggregated", "shared"]
    # netreduce, machines
    congestion: Literal["none", "dcqcn"]
    # netreduce
    deallocation: Literal["full", "packet"]
    # flare, doubling
    density: Fraction
    # canary
    descriptors: int
    # netreduce, machines
    estimate_timer: Time
    # canary
    failure: Literal["first-request", "hold", "all-asked"]
    # a2tp
    fair: bool
    # canary
    fan_in: Literal["unknown", "known"]
    # switchml, atp, a2tp
    fixed_point: bool
    # rina
    full_speed: Rate
    # netreduce, machines
    gain_inverse: int
    # canary
    generations: int
    # canary
    hold: Time
    # netreduce, machines
    hyper: Rate
    # atp, ps
    increase: Bytes
    # canary, atp, a2tp, ps
    initial: int
    # canary
    leader: str
    # canary
    leader_time: Time
    # canary
    lifetime: Time
    # netreduce, machines
    line_rate: Rate
    # netreduce
    lookup: Literal["window", "newest"]
    # canary, a2tp
    mark_weight: Fraction
    # sharp
    mode: Literal["low-latency", "streaming"]
    # atp, a2tp
    nets: Literal["all", "paper"]
    # netreduce, machines
    notification_gap: Time
    # rina
    onward: Literal["switch", "agent"]
    # ring, netreduce, rina
    order: Literal["host", "placement"]
    # sharp
    outstanding: int
    # atp, a2tp
    overflow: Fraction
    # flare, doubling
    overlap: Fraction
    # rina
    partitions: Literal["equal", "balanced"]
    # flare, doubling
    picks: Literal["random", "buckets"]
    # a2tp
    priority: float
    # flare
    probes: bool
    # a2tp
    quiet_rounds: int
    # sharp
    quota: int
    # flare
    range: int
    # netreduce, machines
    rate_bytes: Bytes
    # netreduce, machines
    rate_min: Rate
    # netreduce, machines
    rate_timer: Time
    # atp, a2tp
    reclaim: Time
    # netreduce
    recovery: Literal["switch", "cards"]
    # netreduce
    reemission: Literal["requester", "all"]
    # sharp
    refused: Literal["host", "wait"]
    # rina
    results: Literal["last", "first"]
    # netreduce, machines
    retries: int
    # sharp
    retry: Time
    # canary
    scan: Time
    # ps
    shards: int
    # canary
    shared: bool
    # flare
    slots: int
    # flare
    staggered: bool
    # ring, machines, rina
    step_deviation: Time
    # ring, machines, rina
    step_overhead: Time
    # flare
    storage: Literal["fitting", "two-level", "array", "table"]
    # sharp
    streams_by: Literal["switch", "port"]
    # tree, flare
    sum_order: Literal["arrival", "fixed"]
    # a2tp
    synchrony: Literal["spread", "round-trip"]
    # canary
    table: Literal["auto", "hash", "d-choice", "static"]
    # canary, a2tp
    threshold: Fraction
    # canary
    timeout: Time | Timeouts | Literal["adaptive"]
    # canary
    timeout_max: Time
    # canary
    timeout_min: Time
    # tree, panama
    trees: int
    # panama
    window_initial: int
    # netreduce, machines
    window_messages: int
    # canary
    window_min: int
    # canary, a2tp
    windows: Literal["agreed", "own"] | Literal["fixed", "a2tp"]
