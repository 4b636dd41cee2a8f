"""What can go wrong. Every error is a :class:`FaninError` and says which rank of which job it happened to, and which rank caused it."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArgumentError",
    "ClosedError",
    "ConfigurationError",
    "FaninError",
    "JobFailedError",
    "JobTimeoutError",
    "PlanError",
]


class FaninError(Exception):
    """What all errors of Fanin have in common."""

    #: This rank, where there is one.
    rank: int | None
    #: The job's name, where there is one.
    job: str | None
    #: The rank that is missing or wrong, where that is known.
    cause: int | None

    def __init__(
        self,
        message: str = "",
        *,
        rank: int | None = None,
        job: str | None = None,
        cause: int | None = None,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.job = job
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes (multiprocessing, concurrent.futures) with all that they say.
        return _rebuild, (type(self), self.args, self.rank, self.job, self.cause)


def _rebuild(kind: type[FaninError], arguments: tuple[str, ...], rank: int | None, job: str | None, cause: int | None) -> FaninError:
    return kind(*arguments, rank=rank, job=job, cause=cause)


class ConfigurationError(FaninError, ValueError):
    """Arguments or environment variables do not say who takes part and where ranks meet."""


class ArgumentError(FaninError, ValueError):
    """The arguments of a call do not fit; nothing was done, and the communicator is as before."""


class JobFailedError(FaninError, RuntimeError):
    """The job has failed. Every rank gets an error, and the communicator is of no use any more."""


class JobTimeoutError(JobFailedError, TimeoutError):
    """The job has failed because a rank or the switch did not come in time."""


class ClosedError(FaninError, RuntimeError):
    """The communicator was closed, or belongs to the process that this one was forked from."""


class PlanError(FaninError, ValueError):
    """A plan to simulate is wrong: names key, value and what was expected."""
