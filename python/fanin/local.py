"""Jobs of processes on this machine: for tests, notebooks and first steps."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, Literal, TypeVar

from fanin import _native
from fanin.communicator import init
from fanin.errors import JobFailedError
from fanin.operators import CustomOperator

__all__ = ["run"]

_R = TypeVar("_R")

#: How long the others have to end by themselves once one has failed, in seconds.
_GRACE_S = 10.0

#: What the environment says of TLS is for switches elsewhere: these processes meet on loopback.
_PLAIN = {"tls": "", "tls_name": "", "tls_cert": "", "tls_key": ""}


def run(
    function: Callable[..., _R],
    *arguments: Any,
    workers: int = 4,
    transport: Literal["auto", "udp", "shm"] = "auto",
    timeout: float = 60.0,
    start: Literal["spawn", "fork", "forkserver"] = "spawn",
    operators: Sequence[CustomOperator] = (),
) -> list[_R]:
    """Calls ``function`` with a communicator, and with ``arguments``, in so many new processes; gives what they return, by rank.

    As always with :mod:`multiprocessing`, function, arguments and results have to be picklable, and a script needs
    ``if __name__ == "__main__":``. A function that was defined in a notebook needs ``start="fork"``. The job brings ``operators`` along.

    Raises:
        JobFailedError: A rank has raised an exception, which is the cause (``__cause__``) where it can be sent, or has died.
    """
    if workers < 1:
        raise ValueError(f"workers = {workers}: expected at least 1")
    context: Any = multiprocessing.get_context(start)
    # In this process, which outlives the ranks: at a port that the kernel chooses, so that nobody else can take it in between.
    switch = _native.Host("127.0.0.1:0", linger=1.0, **_PLAIN)
    job = f"run-{os.getpid()}-{time.monotonic_ns()}"
    ranks: list[_Rank] = []
    try:
        for rank in range(workers):
            settings = {
                "rank": rank,
                "world": workers,
                "job": job,
                "switch": switch.address,
                "transport": transport,
                "timeout": timeout,
                "operators": list(operators),
                **_PLAIN,
            }
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(sender, settings, function, arguments), name=f"fanin-{rank}")
            process.start()
            sender.close()
            ranks.append(_Rank(rank, process, receiver))
        return _collect(ranks, job)
    finally:
        for one in ranks:
            one.end()
        switch.close()


def _work(
    sender: multiprocessing.connection.Connection,
    settings: dict[str, Any],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """The life of a rank."""
    try:
        with init(**settings) as communicator:
            answer = (True, function(communicator, *arguments))
    except BaseException as error:
        answer = (False, (error, f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"))
    try:
        sender.send(answer)
    except Exception as error:
        kind = "result" if answer[0] else "exception"
        sender.send((False, (None, f"the {kind} of type {type(answer[1])} cannot be sent to another process: {error}")))


class _Rank:
    """A process, and where it answers."""

    def __init__(self, rank: int, process: BaseProcess, receiver: multiprocessing.connection.Connection) -> None:
        self.rank = rank
        self.process = process
        self.receiver = receiver
        self.answer: tuple[bool, Any] | None = None

    def hear(self) -> None:
        """Takes the answer, which is there or will not come any more."""
        try:
            self.answer = self.receiver.recv()
        except EOFError:
            self.process.join()
            self.answer = (False, (None, f"the process has ended with exit code {self.process.exitcode}"))
        except Exception as error:
            self.answer = (False, (None, f"what the rank has answered cannot be read: {error}"))

    def end(self) -> None:
        if self.answer is None:
            self.process.kill()
        self.process.join()
        self.receiver.close()


def _collect(ranks: list[_Rank], job: str) -> list[Any]:
    """The results, by rank."""
    failed: list[_Rank] = []
    deadline: float | None = None
    waiting = {one.receiver: one for one in ranks}
    while waiting:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = multiprocessing.connection.wait(list(waiting), left)
        if not ready:
            break
        for receiver in ready:
            one = waiting.pop(receiver)  # type: ignore[call-overload]
            one.hear()
            if one.answer is not None and not one.answer[0]:
                failed.append(one)
                deadline = deadline or time.monotonic() + _GRACE_S
    if failed:
        _raise(failed, job)
    return [one.answer[1] for one in ranks if one.answer is not None]


def _raise(failed: list[_Rank], job: str) -> None:
    # A rank that fails by itself makes the others fail as well: they know only that the job has.
    first = min(failed, key=lambda one: isinstance(one.answer and one.answer[1][0], JobFailedError))
    error, text = first.answer[1] if first.answer is not None else (None, "")
    raise JobFailedError(f"rank {first.rank} of {job} has failed: {text}", job=job, cause=first.rank) from error
