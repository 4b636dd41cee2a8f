"""How the vectors of a group have travelled, and which operators of its own it has: what programs can ask a group itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from fanin.errors import ArgumentError
from fanin.operators import CustomOperator
from fanin.torch.backend import FaninBackend, Passed

__all__ = ["Passed", "Report", "all_reduce", "report"]


@dataclass(frozen=True)
class Report:
    """What :func:`report` says of a group, at this rank."""

    #: The job's name, in messages of the switch and in logs.
    job: str
    #: This rank, in the group.
    rank: int
    #: Number of ranks.
    world: int
    #: How vectors travel: ``"shm"``, ``"udp"``, ``"fabric"``, ``"shm+fabric"`` where ranks share hosts of a fabric, or ``"alone"`` with one
    #: rank.
    transport: str
    #: The same for people: also why so, and by which switch.
    path: str
    #: Whether floats are summed to the same bits in every run, and what these depend on: ``"element"``, ``"block"``, ``"tree"``, or
    #: ``None``.
    reproducible: Literal["element", "block", "tree"] | None
    #: What the communicator was asked for so far, by name, such as ``"all_reduce"``: calls and bytes of this rank's vectors.
    calls: Mapping[str, Passed]
    #: Packets that this rank has sent so far; none in shared memory.
    packets_sent: int
    #: Those among them that were sent again: something was lost, or late.
    packets_retransmitted: int
    #: How the last sparse vectors were summed and why so, for people; ``None`` before the first ones have come back.
    sparse: str | None
    #: The same in a word: ``"alone"``, ``"lists"`` or ``"dense"``, or a word of a later release.
    sparse_way: str | None
    #: What gloo has done, since switches have no part in it.
    gloo: tuple[str, ...]


def backend_of(group: dist.ProcessGroup | None, what: str) -> FaninBackend:
    """The backend of a group; ``None`` is the default group.

    Raises:
        ArgumentError: It is none of Fanin's.
    """
    chosen = group if group is not None else dist.group.WORLD
    if chosen is None:
        raise ArgumentError(f"{what}: there is no default group: expected init_process_group before, or a group")
    backend: Any = chosen._get_backend(torch.device("cpu"))
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL it is behind one that looks at calls.
    backend = getattr(backend, "wrapped_pg", backend)
    if not isinstance(backend, FaninBackend):
        raise ArgumentError(f"{what}: the group's backend for tensors on the CPU is {type(backend).__name__}: expected fanin")
    return backend


def report(group: dist.ProcessGroup | None = None) -> Report:
    """How the vectors of ``group``, or of the default group, have travelled so far.

    Raises:
        ArgumentError: The group's backend is not Fanin's.
    """
    backend = backend_of(group, "report")
    comm = backend.communicator
    sparse_way, sparse = backend.sparse_report or (None, None)
    sent, retransmitted = comm.packets
    return Report(
        job=comm.job,
        rank=comm.rank,
        world=comm.world,
        transport=comm.transport,
        path=comm.path,
        reproducible=backend.reproducible,
        calls=dict(backend.passed),
        packets_sent=sent,
        packets_retransmitted=retransmitted,
        sparse=sparse,
        sparse_way=sparse_way,
        gloo=backend.by_gloo,
    )


def all_reduce(tensor: Tensor, op: CustomOperator, group: dist.ProcessGroup | None = None) -> Future[list[Tensor]]:
    """Reduces ``tensor`` in place by an operator of one's own, in the background; the future's value is a list of the tensor.

    The group must have been made with ``pg_options=Options(operators=...)`` that has ``op``.

    Raises:
        ArgumentError: The tensor's bytes are not elements of the operator, or the group is not one of Fanin's or has not got the operator.
    """
    return backend_of(group, "all_reduce").allreduce_custom(tensor, op).get_future()
