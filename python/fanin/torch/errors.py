"""Exceptions that are PyTorch's and Fanin's alike, so that either family's handlers see them."""

from __future__ import annotations

from torch.distributed import DistBackendError

from fanin.errors import FaninError, JobFailedError, JobTimeoutError


class CollectiveError(JobFailedError, DistBackendError):
    """A collective has failed, and with it the group: every rank gets an error. ``cause`` is the rank at fault, if it is known."""


class CollectiveTimeoutError(JobTimeoutError, CollectiveError):
    """A rank or the switch did not come in time."""


def of_collective(name: str, timeout_s: float, error: BaseException) -> BaseException:
    """What a caller of PyTorch gets for an error of the communicator in the collective ``name``; wrong arguments stay what they are."""
    if not isinstance(error, FaninError) or isinstance(error, ValueError | CollectiveError):
        return error
    name = name.removeprefix("fanin:")
    made: CollectiveError
    if isinstance(error, TimeoutError):
        text = f"fanin: {name} has ended by a timeout (this rank's is {timeout_s:g} s): {error}"
        made = CollectiveTimeoutError(text, rank=error.rank, job=error.job, cause=error.cause)
    else:
        made = CollectiveError(f"fanin: {name} has failed: {error}", rank=error.rank, job=error.job, cause=error.cause)
    made.__cause__ = error
    return made


def of_joining(timeout_s: float, rank: int, error: FaninError) -> CollectiveError:
    """The same for a group that could not be made; there, wrong settings are an error of the group as well."""
    made = of_collective("joining a group", timeout_s, error)
    if not isinstance(made, CollectiveError):
        made = CollectiveError(f"fanin: joining a group has failed: {error}", rank=rank, cause=rank)
        made.__cause__ = error
    return made


def of_gloo(name: str, rank: int, peer: int | None, error: RuntimeError) -> CollectiveError:
    """The same for an operation that gloo does; ``peer`` is the only rank that it waits for, where there is one."""
    text = str(error).lower()
    is_late = "timed out" in text or "timeout" in text
    kind = CollectiveTimeoutError if is_late else CollectiveError
    how = "has ended by a timeout" if is_late else "has failed"
    whom = "" if peer is None else f" with rank {peer}"
    made = kind(f"fanin: {name.removeprefix('fanin:')}{whom}, by gloo, {how}: {error}", rank=rank, cause=peer)
    made.__cause__ = error
    return made
