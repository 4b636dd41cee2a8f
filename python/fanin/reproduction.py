"""Papers' figures, run and held against what the papers say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fanin import _native
from fanin.pictures import Pictures
from fanin.simulation import Results, computing, plain

__all__ = ["Reproduction", "papers", "repro"]


class Reproduction:
    """A paper's figures that have been run, with a verdict on each of its claims."""

    #: One dictionary a claim, with the keys of the program's ``claims.json``: ``claim`` (``FIGURE/ID``), ``paper`` (what it says),
    #: ``measured``, ``interval``, ``window``, ``verdict``, ``reason``, ``readings``, ``causes`` and others.
    claims: list[dict[str, Any]]
    #: What the runs of each figure have given, by its name; a figure that is computed by formulas has none.
    results: dict[str, Results]
    #: Runs that failed or were not exact, in words. That a claim is not reproduced is a result and no problem.
    problems: list[str]

    def __init__(self, native: _native.Reproduction) -> None:
        self._native = native
        self.claims = json.loads(native.json)
        self.problems = native.problems
        found = {name: native.results(place) for place, name in enumerate(native.figures)}
        self.results = {name: Results(results) for name, results in found.items() if results is not None}

    @property
    def figures(self) -> list[str]:
        """Names of the figures, in the order in which they were run."""
        return self._native.figures

    @property
    def ok(self) -> bool:
        """Whether every run ended as its plan expects, and every sum was exact."""
        return not self.problems

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each claim, by ``FIGURE/ID``.

        They are ``"reproduced"``, ``"not reproduced"``, ``"undecided"``, ``"reported"`` and ``"cannot be tested here"``.
        """
        return {claim["claim"]: claim["verdict"] for claim in self.claims}

    def plot(self, path: str | os.PathLike[str] | None = None, *, figure: str | None = None, name: str | None = None) -> Pictures:
        """Draws the pictures of one figure, or of the only one. The rest is as :meth:`Results.plot` has it.

        Raises:
            KeyError: There is no such figure, or no such picture.
            ValueError: There are several figures, and ``figure`` does not say which; or ``path`` is a file, and there are several pictures.
        """
        if figure is None and len(self.figures) != 1:
            raise ValueError(f"figure = None: expected one of {', '.join(self.figures)}")
        if figure is not None and figure not in self.figures:
            raise KeyError(f"figure = {figure!r}: expected one of {', '.join(self.figures)}")
        place = 0 if figure is None else self.figures.index(figure)
        pictures = Pictures(dict(self._native.pictures(place))).chosen(name)
        if path is not None:
            pictures.save(path)
        return pictures

    def report(self) -> str:
        """The page that the program writes as ``report.html``."""
        return self._native.report()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes what ``fanin repro --out`` writes, into a folder that is made where it is missing."""
        self._native.write(os.fspath(folder))

    def __str__(self) -> str:
        return self._native.text

    def __repr__(self) -> str:
        reproduced = sum(verdict == "reproduced" for verdict in self.verdicts.values())
        return f"<fanin.Reproduction of {', '.join(self.figures)}: {reproduced} of {len(self.claims)} claims reproduced>"


def papers(experiments: str | os.PathLike[str] | None = None) -> dict[str, list[str]]:
    """The papers that :func:`repro` knows, each with the names of its figures; those of a folder of one's own, where it is given."""
    return dict(_native.papers(None if experiments is None else os.fspath(experiments)))


def repro(
    paper: str,
    figures: str | Sequence[str] = (),
    *,
    quick: bool = False,
    changes: Mapping[str, Any] | None = None,
    causes: bool = True,
    experiments: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    executor: Any = None,
) -> Reproduction:
    """Runs a paper's figures and holds what comes out against what the paper says, by the code of ``fanin repro``.

    Args:
        paper: The paper: a key of :func:`papers`.
        figures: Its figures, or one; all where none is given.
        quick: Fewer repetitions and points, as each figure says: for a first look.
        changes: Values in place of the plans', by their keys, after what ``quick`` changes.
        causes: Whether the changed plans are run as well by which causes are shown or refuted.
        experiments: Experiments of this folder in place of those in the package.
        threads: Runs at the same time; results do not depend on it. All cores by default.
        progress: Called now and then with the number of runs that have ended, and of all runs.
        executor: What computes the runs in place of this process's threads, as for :func:`fanin.sweep`.

    Raises:
        PlanError: There is no such paper or figure, or a change does not fit: says what was expected.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads = {threads}: expected at least 1")
    names = [figures] if isinstance(figures, str) else list(figures)
    with computing(executor) as elsewhere:
        native = _native.repro(
            paper,
            names,
            quick=quick,
            sets=None if changes is None else plain(changes),
            causes=causes,
            experiments=None if experiments is None else os.fspath(experiments),
            threads=threads,
            progress=progress,
            elsewhere=elsewhere,
        )
    return Reproduction(native)
