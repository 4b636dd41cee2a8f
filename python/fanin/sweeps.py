"""Sweeps: the runs of a plan, computed anywhere and kept in a folder of Parquet files, which an interrupted sweep goes on from."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fanin import _native
from fanin.errors import PlanError
from fanin.executor import ATTEMPTS, ExecutorError, FailedRun, compute, connect, part_length
from fanin.plans import Plan
from fanin.simulation import given

__all__ = ["Sweep", "sweep"]

#: Says what a folder holds.
_ABOUT = "sweep.json"
_PLAN = "plan.toml"
#: What has gone wrong, beside the tables.
_FAILED = "failed.json"
#: Written last of a part's tables: a part with it is complete.
_LAST = "runs"


class Sweep:
    """A folder with the results of a sweep: for each table a folder of Parquet files, which any reader of Parquet takes as one table."""

    #: Where it is.
    folder: Path
    #: How many runs the plan has.
    runs: int
    #: Runs that failed wherever they were tried: ``run``, ``where`` (point and seed) and ``errors``. They have no rows, and the next call
    #: tries them again.
    failed: list[dict[str, Any]]
    #: Runs that ended otherwise than the plan expects, or with a wrong sum, in words.
    problems: list[str]

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Opens the folder of a sweep.

        Raises:
            PlanError: There is no sweep in it.
        """
        self.folder = Path(folder)
        about = _read(self.folder)
        if about is None:
            raise PlanError(f"{self.folder}: expected the folder of a sweep, with {_ABOUT}")
        self.runs = about["runs"]
        state = json.loads(_text(self.folder / _FAILED) or "{}")
        self.failed = state.get("failed", [])
        self.problems = state.get("problems", [])

    @property
    def tables(self) -> list[str]:
        """Names of the tables that have rows: ``runs``, ``jobs``, ``workers``, ``links``, ``memory``, ``series``, ``communication``."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir() and any(path.glob("*.parquet")))

    @property
    def ok(self) -> bool:
        """Whether all runs are there, ended as the plan expects, and every sum was exact."""
        return not (self.failed or self.problems)

    def table(self, name: str = "runs") -> Any:
        """A table, as a ``pyarrow.Table``: ``run`` is the number of the run among all of the plan's.

        Raises:
            KeyError: It has no rows.
        """
        dataset = _pyarrow("dataset")
        if name not in self.tables:
            raise KeyError(f"table = {name!r}: expected one of {', '.join(self.tables)}")
        files = sorted(str(path) for path in (self.folder / name).glob("*.parquet"))
        return dataset.dataset(files, format="parquet").to_table()

    def __repr__(self) -> str:
        return f"<fanin.Sweep of {self.runs} runs in {self.folder}, {'all as expected' if self.ok else 'not all as expected'}>"


def sweep(
    plan: Plan | Mapping[str, Any] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    executor: Any = None,
    changes: Mapping[str, Any] | None = None,
    seed: int | None = None,
    attempts: int = ATTEMPTS,
    progress: bool | Callable[[int, int], object] = True,
) -> Sweep:
    """Runs all points of a plan, here or elsewhere, and keeps what comes out in a folder.

    What is in the folder already is not run again, so a sweep that was interrupted goes on where it was. The files depend on the plan and
    its seed only: they have the same bytes whatever computed them.

    Args:
        plan: As for :func:`fanin.simulate`.
        out: The folder: new, or that of the same sweep.
        over: What is varied, by key: ``{"jobs.0.message": ["64KiB", "1MiB"]}``, in place of what the plan varies under the same keys.
        executor: What computes: ``None`` for a process a core of this machine, a number of processes, a Dask scheduler as
            ``"tcp://HOST:8786"``, ``"ray"`` or ``"ray://HOST:10001"``, a ``dask.distributed.Client``, or any executor of
            ``concurrent.futures``. Workers need the same version of Fanin, and no files of the plan.
        changes: Values in place of the plan's, by their keys.
        seed: Seed of the first repetition, in place of the plan's.
        attempts: How often a run that fails is tried, by other workers where there are any.
        progress: ``True`` for a bar with rate and time left (by tqdm, where it is installed), ``False`` for none, or a function of the
            number of runs that have ended and of all runs.

    Raises:
        PlanError: The plan is wrong, or the folder holds another sweep.
        ExecutorError: The executor cannot be reached, or has no workers.
    """
    sets = {f"sweep.{key}": list(values) for key, values in (over or {}).items()} | dict(changes or {})
    wanted, is_text, plain_sets = given(plan, sets)
    native = _native.sweep(wanted, is_text=is_text, sets=plain_sets or None, seed=seed)
    folder = Path(out)
    parquet = _pyarrow("parquet")
    _claim(folder, native)
    engine = connect(executor)
    told = _Progress(progress, native.runs)
    try:
        state = _State(folder, native, parquet)
        told.add(native.runs - sum(count for _, count in state.missing))
        for done in compute(engine, "plan", native.bundle, iter(state.missing), attempts):
            told.add(state.take(done))
        state.finish()
    finally:
        told.close()
        engine.close()
    return Sweep(folder)


class _State:
    """A folder that becomes complete."""

    def __init__(self, folder: Path, native: _native.Sweep, parquet: Any) -> None:
        self._folder, self._native, self._parquet = folder, native, parquet
        self._length = part_length(native.runs)
        known = json.loads(_text(folder / _FAILED) or "{}")
        incomplete = {failed["run"] // self._length for failed in known.get("failed", [])}
        parts = range((native.runs + self._length - 1) // self._length)
        there = [part for part in parts if self._file(_LAST, part).exists() and part not in incomplete]
        #: First run and number of runs of the parts that are still to be computed.
        self.missing = [self._range(part) for part in parts if part not in set(there)]
        before = {int(part): words for part, words in known.get("by_part", {}).items()}
        self._problems: dict[int, list[str]] = {part: before[part] for part in there if part in before}
        self._failed: list[FailedRun] = []
        # Runs of parts that were divided.
        self._single: dict[int, dict[int, bytes | None]] = {}

    def _range(self, part: int) -> tuple[int, int]:
        first = part * self._length
        return first, min(self._length, self._native.runs - first)

    def _file(self, table: str, part: int) -> Path:
        return self._folder / table / f"part-{part:06}.parquet"

    def take(self, done: tuple[int, int, bytes] | FailedRun) -> int:
        """Keeps what has come back; gives the number of runs."""
        if isinstance(done, FailedRun):
            self._failed.append(done)
            first, count, result = done.run, 1, None
        else:
            first, count, result = done
        part = first // self._length
        whole = self._range(part)
        if (first, count) == whole and result is not None:
            self._write(part, [(first, result)])
            return count
        singles = self._single.setdefault(part, {})
        singles[first] = result
        if len(singles) == whole[1]:
            self._write(part, [(run, result) for run, result in sorted(singles.items()) if result is not None])
            del self._single[part]
        return count

    def _write(self, part: int, pieces: list[tuple[int, bytes]]) -> None:
        """Writes a part's tables; a file is there whole or not at all."""
        tables: dict[str, list[Any]] = {}
        problems: list[str] = []
        pyarrow = _pyarrow()
        for first, result in pieces:
            made, bad = self._native.tables(first, result)
            problems += bad
            for name, table in made:
                tables.setdefault(name, []).append(pyarrow.table(table))
        if problems:
            self._problems[part] = problems
        else:
            self._problems.pop(part, None)
        self._note()
        for name in sorted(tables, key=lambda name: name == _LAST):
            table = pyarrow.concat_tables(tables[name])
            if table.num_rows == 0 and name != _LAST:
                continue
            file = self._file(name, part)
            file.parent.mkdir(exist_ok=True)
            beside = file.with_suffix(".new")
            self._parquet.write_table(table, beside, compression="zstd")
            beside.replace(file)

    def _note(self) -> None:
        """Writes what has gone wrong up to now."""
        failed = [
            {"run": run.run, "where": self._native.describe(run.run), "errors": list(run.errors)}
            for run in sorted(self._failed, key=lambda run: run.run)
        ]
        by_part = {str(part): words for part, words in sorted(self._problems.items())}
        problems = [words for part in sorted(self._problems) for words in self._problems[part]]
        _put(self._folder / _FAILED, {"failed": failed, "problems": problems, "by_part": by_part})

    def finish(self) -> None:
        """All has come back."""
        self._note()


class _Progress:
    """How far a sweep is."""

    def __init__(self, wanted: bool | Callable[[int, int], object], total: int) -> None:
        self._ended, self._total = 0, total
        self._function = wanted if callable(wanted) else None
        self._bar: Any = None
        if wanted is True:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit=" runs", smoothing=0.1)

    def add(self, runs: int) -> None:
        self._ended += runs
        if self._function is not None:
            self._function(self._ended, self._total)
        elif self._bar is not None:
            self._bar.update(runs)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _claim(folder: Path, native: _native.Sweep) -> None:
    """Makes the folder that of this sweep, or finds that it is."""
    about = {"runs": native.runs, "version": _native.__version__, "identity": native.identity}
    before = _read(folder)
    if before is None:
        if folder.exists() and any(folder.iterdir()):
            raise PlanError(f"out = {str(folder)!r}: expected a new folder, or that of a sweep, with {_ABOUT}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _PLAN).write_text(native.plan)
        _put(folder / _ABOUT, about)
    elif before != about:
        what = [key for key in about if before.get(key) != about[key]]
        named = ", ".join("plan" if key == "identity" else key for key in what)
        expected = f"expected its plan, {folder / _PLAN}, or another folder"
        raise PlanError(f"out = {str(folder)!r}: it holds another sweep (another {named}): {expected}")


def _read(folder: Path) -> dict[str, Any] | None:
    text = _text(folder / _ABOUT)
    return None if text is None else dict(json.loads(text))


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except FileNotFoundError:
        return None


def _put(file: Path, what: object) -> None:
    beside = file.with_name(file.name + ".new")
    beside.write_text(json.dumps(what, indent=1) + "\n")
    beside.replace(file)


def _pyarrow(module: str | None = None) -> Any:
    try:
        return importlib.import_module("pyarrow" if module is None else f"pyarrow.{module}")
    except ImportError as error:
        what = f"sweep: Parquet needs the package pyarrow, which is not installed ({error}): pip install 'fanin[sweep]'"
        raise ExecutorError(what) from None
