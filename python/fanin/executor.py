"""Where runs are computed: local processes, Dask, Ray, or any executor of ``concurrent.futures``.

A plan's runs go to an engine as parts: a bundle (the plan with all files that it names, once) and numbers of runs. Each run depends on
plan and seed only, so parts can be computed anywhere, again, and in any order. A part that fails is divided into single runs, and a run
that fails is tried again by another worker where there is one.

``python3 -m fanin.executor ADDRESS`` is the client that ``fanin sim --executor ADDRESS`` starts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any, BinaryIO, Protocol

from fanin import _native
from fanin.errors import FaninError
from fanin.program import find_program

__all__ = ["ExecutorError", "FailedRun", "compute", "connect"]

#: How often a run is tried.
ATTEMPTS = 3
#: How often a part may be lost with a worker before that counts as an attempt.
LOST_MAX = 8
#: How long there may be no worker before that is an error, in seconds.
PATIENCE_S = 60.0
#: How often an engine that is silent is asked for its workers, in seconds.
LOOK_S = 5.0
#: Parts for each worker that are under way.
DEPTH = 2

_EXPECTED = (
    'expected a number of processes, a Dask scheduler ("tcp://HOST:8786"), "ray", "ray://HOST:10001", a dask.distributed.Client, '
    "or an executor of concurrent.futures"
)


class ExecutorError(FaninError, RuntimeError):
    """Runs could not be computed by an executor: it cannot be reached, has no workers, or a run has failed wherever it was tried."""


@dataclass(frozen=True)
class FailedRun:
    """A run that failed wherever it was tried."""

    #: Its number among the plan's runs.
    run: int
    #: What each attempt said: worker and error.
    errors: tuple[str, ...]

    def __str__(self) -> str:
        return f"run {self.run}: " + "; ".join(self.errors)


@dataclass
class _Part:
    """Runs that are computed together."""

    first: int
    count: int
    errors: list[str] = field(default_factory=list)
    #: Workers where it failed.
    avoid: set[str] = field(default_factory=set)
    #: Whether it was under way when a process died, and may be why: then it is computed with nothing beside it.
    suspect: bool = False
    #: How often it was lost with a worker.
    lost: int = 0


class _Engine(Protocol):
    """What computes parts."""

    def workers(self) -> int:
        """How many parts can be computed at the same time; 0 where nobody is there."""

    def submit(self, kind: str, bundle: bytes, part: _Part) -> Any:
        """Begins a part: a future of ``work``'s result."""

    def mend(self) -> bool:
        """Makes what can be made anew after a process has died; whether that is possible."""

    def close(self) -> None:
        """Ends what was begun here, and nothing that was there before."""


class PartError(RuntimeError):
    """A part has failed, at a worker."""

    def __init__(self, where: str, words: str) -> None:
        super().__init__(where, words)
        self.where = where
        self.words = words

    def __str__(self) -> str:
        return f"{self.where}: {self.words}"


def _worker() -> str:
    """This worker: Dask's address, or host and process."""
    if "distributed.worker" in sys.modules:
        # In a worker of Dask there is one; the client's process may have the module, too.
        with contextlib.suppress(ValueError):
            return str(sys.modules["distributed.worker"].get_worker().address)
    return f"{socket.gethostname()}, process {os.getpid()}"


def work(kind: str, bundle: bytes, first: int, count: int) -> bytes:
    """Computes a part; it is called in the workers.

    Args:
        kind: ``"plan"`` for runs of a plan, ``"check"`` for seeds of a campaign.
        bundle: What the runs are of.
        first: The first run.
        count: How many.
    """
    try:
        if kind == "plan":
            return _native.run_part(bundle, first, count)
        return _check(json.loads(bundle), first, count)
    except Exception as error:
        # Exceptions of a plan have arguments that do not travel; words do.
        raise PartError(_worker(), f"{type(error).__name__}: {error}") from None


def _check(wanted: Mapping[str, Any], first: int, count: int) -> bytes:
    """Runs seeds of a campaign by the program of this installation; 1 is its exit code where it has found something."""
    command = [find_program(), "check", wanted["system"], "--first", str(wanted["first"] + first), "--seeds", str(count)]
    command += ["--threads", "1", "--format", "json", *(["--once"] if wanted["once"] else [])]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.decode(errors="replace").strip())
    return done.stdout


class _Pool:
    """An executor of ``concurrent.futures``; processes of our own are made anew where one of them has died."""

    def __init__(self, executor: futures.Executor | None, processes: int) -> None:
        self._own = executor is None
        self._processes = processes
        self._executor = executor or self._start()

    def _start(self) -> futures.Executor:
        # Forking is not safe beside threads.
        return futures.ProcessPoolExecutor(self._processes, mp_context=get_context("spawn"))

    def workers(self) -> int:
        return self._processes

    def submit(self, kind: str, bundle: bytes, part: _Part) -> futures.Future[bytes]:
        return self._executor.submit(work, kind, bundle, part.first, part.count)

    def mend(self) -> bool:
        if not self._own:
            return False
        try:
            # All that was under way tells of the same break, and it is mended once.
            self._executor.submit(os.getpid).cancel()
        except BrokenProcessPool:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = self._start()
        return True

    def close(self) -> None:
        if self._own:
            self._executor.shutdown(wait=False, cancel_futures=True)


class _Dask:
    """A cluster of Dask distributed."""

    def __init__(self, client: Any, own: bool) -> None:
        self._client = client
        self._own = own
        self._bundles: dict[bytes, Any] = {}
        self._futures: set[Any] = set()

    def workers(self) -> int:
        return sum(self._client.nthreads().values())

    def submit(self, kind: str, bundle: bytes, part: _Part) -> Any:
        if bundle not in self._bundles:
            if not self.workers():
                # A cluster that grows by need has none at first.
                try:
                    self._client.wait_for_workers(1, timeout=PATIENCE_S)
                except TimeoutError:
                    raise ExecutorError(_nobody()) from None
            # Once, and not with each part; one for each value, whoever sends it.
            self._bundles = {bundle: self._client.scatter(bundle, broadcast=False, hash=True)}
        others = [worker for worker in self._client.nthreads() if worker not in part.avoid] if part.avoid else []
        future = self._client.submit(
            work, kind, self._bundles[bundle], part.first, part.count, pure=False, workers=others or None, allow_other_workers=bool(others)
        )
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def mend(self) -> bool:
        # The bundle may have been at the worker that died.
        self._bundles = {}
        return True

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.cancel(list(self._futures))
        self._bundles = {}
        if self._own:
            self._client.close()


class _Ray:
    """A cluster of Ray."""

    def __init__(self, ray: Any, own: bool) -> None:
        self._ray = ray
        self._own = own
        self._work = ray.remote(work).options(max_retries=ATTEMPTS, num_cpus=1)
        self._bundles: dict[bytes, Any] = {}

    def workers(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def submit(self, kind: str, bundle: bytes, part: _Part) -> Any:
        if bundle not in self._bundles:
            self._bundles = {bundle: self._ray.put(bundle)}
        return self._work.remote(kind, self._bundles[bundle], part.first, part.count).future()

    def mend(self) -> bool:
        return True

    def close(self) -> None:
        self._bundles = {}
        if self._own:
            self._ray.shutdown()


def _nobody() -> str:
    return f"executor: it has had no worker for {PATIENCE_S:.0f} s"


def _package(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ExecutorError(f"executor: {what} needs the package {name}, which is not installed ({error})") from None


def connect(executor: Any = None) -> _Engine:
    """Connects to an engine.

    Args:
        executor: ``None`` for a process a core, a number of processes, a Dask scheduler as ``"tcp://HOST:8786"``, ``"ray"`` or
            ``"ray://HOST:10001"``, a ``dask.distributed.Client``, or any executor of ``concurrent.futures``.

    Raises:
        ExecutorError: It cannot be reached, or its package is not installed.
        ValueError: It is none of these.
    """
    if isinstance(executor, str) and executor.isascii() and executor.isdigit():
        executor = int(executor)
    if executor is None:
        return _Pool(None, len(os.sched_getaffinity(0)))
    if isinstance(executor, int) and not isinstance(executor, bool):
        if executor < 1:
            raise ValueError(f"executor = {executor}: expected at least 1 process")
        return _Pool(None, executor)
    if isinstance(executor, str):
        return _by_address(executor)
    if hasattr(executor, "scatter") and hasattr(executor, "nthreads"):
        return _Dask(executor, own=False)
    if isinstance(executor, futures.Executor):
        return _Pool(executor, getattr(executor, "_max_workers", None) or len(os.sched_getaffinity(0)))
    raise ValueError(f"executor = {executor!r}: {_EXPECTED}")


def _by_address(address: str) -> _Engine:
    if address == "ray" or address.startswith("ray://"):
        ray = _package("ray", "Ray")
        own = not ray.is_initialized()
        if own:
            try:
                ray.init(address=address if "://" in address else "auto", log_to_driver=False)
            except ConnectionError as error:
                raise ExecutorError(f"executor = {address!r}: {error}") from None
        return _Ray(ray, own)
    if address.split("://")[0] in ("tcp", "tls", "ws", "wss") and "://" in address:
        distributed = _package("distributed", "Dask")
        try:
            return _Dask(distributed.Client(address, set_as_default=False, timeout=PATIENCE_S / 2), own=True)
        except (OSError, TimeoutError, ValueError) as error:
            raise ExecutorError(f"executor = {address!r}: no Dask scheduler there: {error}") from None
    raise ValueError(f"executor = {address!r}: {_EXPECTED}")


def compute(
    engine: _Engine, kind: str, bundle: bytes, parts: Iterator[tuple[int, int]], attempts: int = ATTEMPTS
) -> Iterator[tuple[int, int, bytes] | FailedRun]:
    """Has parts computed; yields each as it ends, in any order: its first run, how many runs, and what it gave; or a run that has failed.

    Args:
        engine: What computes, by :func:`connect`.
        kind: What :func:`work` is to do.
        bundle: What the runs are of.
        parts: First run and number of runs of each part.
        attempts: How often a run is tried.

    Raises:
        ExecutorError: The engine has no workers for a minute, or is lost.
    """
    ended: queue.SimpleQueue[tuple[_Part, Any]] = queue.SimpleQueue()
    waiting: list[_Part] = []
    under_way = 0
    open_ended = True
    while open_ended or under_way or waiting:
        while under_way < _room(engine, waiting):
            if not waiting:
                following = next(parts, None) if open_ended else None
                open_ended = following is not None
                if following is None:
                    break
                waiting.append(_Part(*following))
            _begin(engine, kind, bundle, waiting.pop(), ended)
            under_way += 1
        if not under_way:
            continue
        part, future = _next(engine, ended)
        under_way -= 1
        error, result = _outcome(future)
        if error is None:
            yield part.first, part.count, result
            continue
        if _is_lost(error) and part.lost < LOST_MAX:
            # What the part gave, or what it needs, was at a worker that died.
            engine.mend()
            waiting.append(replace(part, lost=part.lost + 1))
            continue
        if isinstance(error, BrokenProcessPool):
            if not engine.mend():
                raise ExecutorError(f"executor: {error}")
            if under_way or not part.suspect:
                waiting.append(replace(part, suspect=True))
                continue
        again = _again(part, error, attempts)
        if isinstance(again, FailedRun):
            yield again
        else:
            waiting.extend(again)


def _room(engine: _Engine, waiting: list[_Part]) -> int:
    """How many parts may be under way: one, where a part may be why a process has died."""
    return 1 if any(part.suspect for part in waiting) else max(1, _workers(engine)) * DEPTH


def _workers(engine: _Engine) -> int:
    """How many workers there are; whatever an engine's client raises, it is lost."""
    try:
        return engine.workers()
    except Exception as error:
        raise ExecutorError(f"executor: it cannot be reached any more: {error}") from None


def _begin(engine: _Engine, kind: str, bundle: bytes, part: _Part, ended: queue.SimpleQueue[tuple[_Part, Any]]) -> None:
    try:
        future = engine.submit(kind, bundle, part)
    except BrokenProcessPool as error:
        if not engine.mend():
            raise ExecutorError(f"executor: {error}") from None
        future = engine.submit(kind, bundle, part)
    except (OSError, TimeoutError) as error:
        raise ExecutorError(f"executor: {error}") from None
    future.add_done_callback(lambda future: ended.put((part, future)))


def _next(engine: _Engine, ended: queue.SimpleQueue[tuple[_Part, Any]]) -> tuple[_Part, Any]:
    """The next part that ends; an engine without workers is given some time to get one."""
    alone_since: float | None = None
    while True:
        try:
            return ended.get(timeout=LOOK_S)
        except queue.Empty:
            pass
        workers = _workers(engine)
        now = time.monotonic()
        alone_since = None if workers else (alone_since or now)
        if alone_since is not None and now - alone_since > PATIENCE_S:
            raise ExecutorError(_nobody())


def _outcome(future: Any) -> tuple[BaseException | None, Any]:
    """What went wrong, or what came out; that may be lost by now with the worker that had it."""
    try:
        error: BaseException | None = future.exception()
        return error, None if error is not None else future.result()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as raised:
        # A future that was cancelled raises.
        return raised, None


def _is_lost(error: BaseException) -> bool:
    """Whether not the part has failed but the engine: its data were at a worker that died, say. What a part raises is its own error."""
    raised = getattr(error, "cause", None) or error
    return not isinstance(raised, PartError | BrokenProcessPool) and type(error).__name__ not in _FINAL


#: Errors by which engines say that they have tried a part several times themselves, and that each time its worker has died.
_FINAL = ("KilledWorker", "WorkerCrashedError", "OutOfMemoryError")


def _again(part: _Part, error: BaseException, attempts: int) -> list[_Part] | FailedRun:
    """What is tried again of a part that has failed."""
    # Ray's errors are also of the class of what was raised.
    raised = getattr(error, "cause", None) or error
    known = isinstance(raised, PartError)
    words = str(raised) if known else f"{type(error).__name__}: {error}".rstrip(": ")
    errors, avoid = [*part.errors, words], part.avoid | ({raised.where} if isinstance(raised, PartError) else set())
    if part.count > 1:
        singles = reversed(range(part.first, part.first + part.count))
        return [_Part(run, 1, avoid=set(avoid), suspect=part.suspect) for run in singles]
    if len(errors) >= attempts or type(error).__name__ in _FINAL:
        return FailedRun(part.first, tuple(errors))
    return [_Part(part.first, 1, errors, avoid, part.suspect)]


def part_length(runs: int) -> int:
    """Runs of a part: some hundred parts, so that workers share them evenly, and not so many that sending them takes longer than runs."""
    return max(1, min(256, runs // 256))


def parts_of(runs: int) -> Iterator[tuple[int, int]]:
    """All parts of so many runs: first run and number of runs."""
    length = part_length(runs)
    return ((first, min(length, runs - first)) for first in range(0, runs, length))


def elsewhere(engine: _Engine, kind: str = "plan") -> Callable[[bytes, int], Iterator[tuple[int, bytes]]]:
    """What the native module calls to have runs computed: all of them, or an error."""

    def run(bundle: bytes, runs: int) -> Iterator[tuple[int, bytes]]:
        for done in compute(engine, kind, bundle, parts_of(runs)):
            if isinstance(done, FailedRun):
                raise ExecutorError(f"executor: {done}")
            first, _, result = done
            yield first, result

    return run


def _serve(engine: _Engine, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answers the program: a line of JSON and bytes each."""

    def reply(what: object, data: bytes = b"") -> None:
        replies.write(json.dumps(what).encode() + b"\n" + data)
        replies.flush()

    while line := requests.readline():
        request = json.loads(line)
        bundle = requests.read(request["bytes"])
        try:
            for first, part in elsewhere(engine, request["kind"])(bundle, request["runs"]):
                reply({"part": {"first": first, "bytes": len(part)}}, part)
            reply("done")
        except ExecutorError as error:
            reply({"failed": str(error)})


def main(arguments: list[str]) -> int:
    """The client of ``--executor``; returns its exit code."""
    if len(arguments) != 1:
        print("usage: python3 -m fanin.executor ADDRESS", file=sys.stderr)
        return 2
    # Whatever else is printed goes where people read it.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        engine = connect(arguments[0])
    except (ExecutorError, ValueError) as error:
        print(f"error: --{error}", file=sys.stderr)
        return 1
    try:
        _serve(engine, sys.stdin.buffer, replies)
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
    finally:
        # An engine that does not answer does not keep the program from ending.
        closing = threading.Thread(target=engine.close, daemon=True)
        closing.start()
        closing.join(LOOK_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
