"""Runs a function as every rank of a group of processes, and says what each has returned, raised, or died of."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

#: How long a test may take before its processes are killed, in seconds; it only bounds what would hang.
PATIENCE_S = 120.0

#: Whether ``dist.split_group`` takes groups without a GPU.
SPLITS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 15)


@dataclass(frozen=True)
class Ended:
    """How a rank has ended."""

    #: What the function has returned.
    value: Any = None
    #: The traceback of what it has raised.
    error: str | None = None
    #: The process's exit code; negative for a signal.
    code: int | None = None


def run(
    world: int,
    body: Callable[..., Any],
    *arguments: Any,
    backend: str = "fanin",
    timeout_s: float = 60.0,
    environ: Mapping[str, str] | None = None,
) -> list[Any]:
    """What ``body(rank, *arguments)`` returns at each of ``world`` ranks of a group. Fails where one raises or dies."""
    ended = outcomes(world, body, *arguments, backend=backend, timeout_s=timeout_s, environ=environ)
    # All of them: who raises is often not who is at fault.
    wrong = [f"rank {rank} of {world}, exit code {end.code}:\n{end.error}" for rank, end in enumerate(ended) if end.error or end.code]
    assert not wrong, "\n".join(wrong)
    return [end.value for end in ended]


def outcomes(
    world: int,
    body: Callable[..., Any],
    *arguments: Any,
    backend: str = "fanin",
    timeout_s: float = 60.0,
    environ: Mapping[str, str] | None = None,
) -> list[Ended]:
    """As :func:`run`, for tests in which ranks are to raise or die."""
    context = get_context("fork")
    with TemporaryDirectory(prefix="fanin-ranks-") as folder:
        processes, pipes = [], []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            given = (theirs, rank, world, Path(folder) / "store", backend, timeout_s, dict(environ or {}), body, arguments)
            process = context.Process(target=_rank, args=given)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        deadline = time.monotonic() + PATIENCE_S
        ended = []
        for process, pipe in zip(processes, pipes, strict=True):
            said = _hear(pipe, deadline)
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                where = _where_it_stands(process.pid or 0, _stack_file(Path(folder), len(ended)))
                os.kill(process.pid or 0, signal.SIGKILL)
                process.join()
                said = Ended(error=f"it has not ended within {PATIENCE_S} s; it has said {said}; it stands at\n{where}")
            ended.append(Ended(said.value, said.error, process.exitcode))
        return ended


def _stack_file(folder: Path, rank: int) -> Path:
    return folder / f"stack-{rank}"


def _where_it_stands(process: int, file: Path) -> str:
    """The stacks of all threads of a process that hangs."""
    os.kill(process, signal.SIGUSR1)
    time.sleep(1)
    return file.read_text() if file.exists() else "(nobody knows)"


def _hear(pipe: Connection, deadline: float) -> Ended:
    try:
        if pipe.poll(max(0.0, deadline - time.monotonic())):
            heard: Ended = pipe.recv()
            return heard
    except EOFError:
        pass
    return Ended()


def _rank(
    pipe: Connection,
    rank: int,
    world: int,
    store: Path,
    backend: str,
    timeout_s: float,
    environ: dict[str, str],
    body: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.update(environ)
    stacks = open(_stack_file(store.parent, rank), "w")
    faulthandler.register(signal.SIGUSR1, stacks)
    # PyTorch has read it in the parent.
    dist.set_debug_level_from_env()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    try:
        if backend:
            dist.init_process_group(
                backend, init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s)
            )
        pipe.send(Ended(value=body(rank, *arguments)))
    except BaseException:
        pipe.send(Ended(error=traceback.format_exc()))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
