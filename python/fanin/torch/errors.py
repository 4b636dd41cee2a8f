"""Exceptions that are PyTorch's and Fanin's alike, so that either family's handlers see them."""

from __future__ import annotations

from torch.distributed import DistBackendError

from fanin.errors import FaninError, JobFailedError, JobTimeoutError


class CollectiveError(JobFailedError, DistBackendError):
    """A collective has failed, and with it the group: every rank gets an error. ``cause`` is the rank that is to blame, where known."""


class CollectiveTimeoutError(JobTimeoutError, CollectiveError):
    """A rank or the switch did not come in time."""


def of_collective(name: str, timeout_s: float, error: BaseException) -> BaseException:
    """What a caller of PyTorch gets for an error of the communicator in the collective ``name``; wrong arguments stay what they are."""
    if not isinstance(error, FaninError) or isinstance(error, ValueError | CollectiveError):
        return error
    name = name.removeprefix("fanin:")
    if isinstance(error, TimeoutError):
        text = f"fanin: {name} has ended by its timeout of {timeout_s:g} s: {error}"
        return CollectiveTimeoutError(text, rank=error.rank, job=error.job, cause=error.cause)
    return CollectiveError(f"fanin: {name} has failed: {error}", rank=error.rank, job=error.job, cause=error.cause)
