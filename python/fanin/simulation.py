"""The simulator: a plan becomes tables of results."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fanin import _native
from fanin.errors import PlanError
from fanin.executor import ExecutorError, connect, elsewhere
from fanin.pictures import Pictures
from fanin.plans import Plan

__all__ = ["Results", "Table", "simulate"]


class Table:
    """A table of results, by Arrow: polars, pandas and pyarrow read it without copying.

    ``polars.DataFrame(table)``, ``pyarrow.table(table)``.
    """

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return self._native.column_names

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column; ``None`` where a row has none."""
        return self._native.column(column)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, one after the other."""
        names = self.column_names
        for values in zip(*(self[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<fanin.Table of {len(self)} rows: {', '.join(self.column_names)}>"


class Results:
    """What the runs of a plan have given. All but the column ``wall_s`` depends on plan and seed only."""

    #: A row a run, with the columns of the program's ``results.csv``.
    runs: Table
    #: A row a job of a run; ``run`` is the row of the run.
    jobs: Table
    #: A row a worker of a run: its host, and its time.
    workers: Table
    #: A row a link of the first repetition of each point, with the columns of the program's ``links.csv``.
    links: Table
    #: Memory of the switches over time in the first repetition of each point, where the plan says ``run.memory_interval``.
    memory: Table
    #: Jobs over time in the first repetition of each point, where the plan says ``run.series_interval``.
    series: Table
    #: A row for each kind of groups, collective and system of a job with a workload: times, and what of them no computation hides. Rows
    #: with a ``number`` are of single groups: all of them, or the slowest where there are many.
    communication: Table

    def __init__(self, native: _native.Results) -> None:
        self._native = native
        self.runs = Table(native.runs)
        self.jobs = Table(native.jobs)
        self.workers = Table(native.workers)
        self.links = Table(native.links)
        self.memory = Table(native.memory)
        self.series = Table(native.series)
        self.communication = Table(native.communication)

    @property
    def ok(self) -> bool:
        """Whether every run ended as the plan expects, and every sum was exact.

        The columns ``failure`` and ``census`` of the runs say what was wrong.
        """
        return self._native.ok

    @property
    def plan(self) -> str:
        """The plan as it was run, as a file for ``fanin sim``."""
        return self._native.plan

    @property
    def csv(self) -> str:
        """What the program writes as ``results.csv``."""
        return self._native.csv

    def to_dicts(self) -> list[dict[str, Any]]:
        """What the program writes as ``results.json``: one dictionary a run, with its jobs and workers."""
        runs: list[dict[str, Any]] = json.loads(self._native.json)
        return runs

    def plot(self, path: str | os.PathLike[str] | None = None, *, name: str | None = None) -> Pictures:
        """Draws the pictures that the plan asks for, or the usual ones, as the program does.

        Args:
            path: Where to write: a folder, which gets a file ``NAME.svg`` for each, or a file ``....svg`` for one. ``None`` writes nothing.
            name: The picture alone that has this name.

        Raises:
            ValueError: ``path`` is a file, and there are several pictures.
            KeyError: There is no picture of this name.
        """
        pictures = Pictures(dict(self._native.pictures())).chosen(name)
        if path is not None:
            pictures.save(path)
        return pictures

    def __repr__(self) -> str:
        return f"<fanin.Results of {len(self.runs)} runs, {'all as expected' if self.ok else 'not all as expected'}>"


def simulate(
    plan: Plan | Mapping[str, Any] | str | os.PathLike[str],
    *,
    changes: Mapping[str, Any] | None = None,
    seed: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    executor: Any = None,
) -> Results:
    """Runs all points of a plan, by the code of ``fanin sim``.

    Args:
        plan: A :class:`fanin.plans.Plan` or any dictionary like it, the path of a plan's file, or a plan's text. A string is a text where
            it has a line end.
        changes: Values in place of the plan's, by their keys: ``{"jobs.0.message": "1MiB"}``. A key that the plan sweeps over is fixed.
        seed: Seed of the first repetition, in place of the plan's.
        threads: Runs at the same time; results do not depend on it. All cores by default.
        progress: Called now and then with the number of runs that have ended, and of all runs.
        executor: What computes the runs in place of this process's threads, as for :func:`fanin.sweep`.

    Raises:
        PlanError: The plan is wrong: names key, value and what was expected.
        ExecutorError: The executor cannot be reached, has no workers, or a run has failed wherever it was tried.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads = {threads}: expected at least 1")
    if seed is not None and not 0 <= seed < 2**63:
        raise PlanError(f"seed = {seed}: expected 0 to {2**63 - 1}")
    wanted, is_text, sets = given(plan, changes)
    with computing(executor) as elsewhere:
        native = _native.simulate(wanted, is_text=is_text, sets=sets, seed=seed, threads=threads, progress=progress, elsewhere=elsewhere)
    return Results(native)


@contextmanager
def computing(executor: Any) -> Iterator[Callable[[bytes, int], Iterator[tuple[int, bytes]]] | None]:
    """What has runs computed by an executor, while it is needed; ``None`` where there is none."""
    if executor is None:
        yield None
        return
    engine = connect(executor)
    try:
        yield elsewhere(engine)
    except RuntimeError as error:
        # The native module has passed an error on in words.
        if str(error).startswith("executor: "):
            raise ExecutorError(str(error)) from None
        raise
    finally:
        engine.close()


def given(
    plan: Plan | Mapping[str, Any] | str | os.PathLike[str], changes: Mapping[str, Any] | None
) -> tuple[Any, bool, dict[str, Any] | None]:
    """A plan and its changes for the native module: the plan, whether it is a text, and the changes."""
    is_text = isinstance(plan, str) and "\n" in plan
    if isinstance(plan, Mapping):
        wanted = plain(plan)
    else:
        wanted = plan if is_text else os.fspath(plan)
    return wanted, is_text, None if changes is None else plain(changes)


def plain(value: Any) -> Any:
    """For what the native module reads: mappings and sequences of any kind, and numpy's numbers, as Python's own."""
    if isinstance(value, Mapping):
        return {key: plain(below) for key, below in value.items()}
    if isinstance(value, str | bytes | bool | int | float) or value is None:
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, os.PathLike):
        return value
    try:
        return [plain(below) for below in value]
    except TypeError:
        return value
