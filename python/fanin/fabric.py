"""Workloads on a fabric of real switch and host processes of this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from fanin import _native
from fanin.errors import PlanError
from fanin.program import find_program
from fanin.simulation import plain

__all__ = ["TestbedResults", "testbed"]

#: A dictionary, the path of a file, or a text, which is one where it has a line end.
Given: TypeAlias = Mapping[str, Any] | str | os.PathLike[str]


class TestbedResults:
    """What came out of a run on a testbed."""

    # For pytest, which takes classes with such names for tests.
    __test__ = False

    #: All of it, with the keys of ``fanin testbed --format json``: ``jobs`` with their ``operations``, ``switches``, ``hosts``, ``events``,
    #: ``streams`` and others.
    record: dict[str, Any]
    #: What is not as the workload expects; empty where all is well.
    problems: list[str]

    def __init__(self, native: _native.TestbedResults) -> None:
        self._native = native
        self.record = json.loads(native.json)
        self.problems = native.problems

    @property
    def ok(self) -> bool:
        """Whether all came out as the workload expects, and every element of every result was right."""
        return not self.problems

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the results as JSON, and jobs over time beside them where the workload has them sampled."""
        self._native.write(os.fspath(path))

    def __str__(self) -> str:
        return self._native.text

    def __repr__(self) -> str:
        jobs = ", ".join(job["system"] for job in self.record["jobs"])
        return f"<fanin.TestbedResults of {jobs}: {'as expected' if self.ok else 'not as expected'}>"


def testbed(
    fabric: Given,
    workload: Given,
    *,
    changes: Mapping[str, Any] | None = None,
    seed: int | None = None,
    place: Literal["loopback", "namespaces"] = "loopback",
    logs: str | os.PathLike[str] | None = None,
) -> TestbedResults:
    """Runs a workload on a fabric of real processes of this machine, by the code of ``fanin testbed``.

    All processes have ended when it returns or raises, also after Ctrl-C.

    Args:
        fabric: Hosts, switches and links: a dictionary, the path of a file, or a text. A string is a text where it has a line end.
        workload: Jobs, traffic, faults and events, in the same forms.
        changes: Values in place of the workload's, by their keys: ``{"job.0.message": "1MiB"}``.
        seed: Seed of vectors, faults and random choices, in place of the workload's.
        place: Ports on 127.0.0.1, or a network namespace for each node, which needs root.
        logs: Keeps the logs of all processes in this folder. They are kept in a temporary one where the run fails.

    Raises:
        PlanError: Fabric or workload is wrong: names key, value and what was expected.
        OSError: This machine does not let it.
        RuntimeError: A process has failed, or nothing moved: says where the logs are.
    """
    if seed is not None and not 0 <= seed < 2**64:
        raise PlanError(f"seed = {seed}: expected 0 to {2**64 - 1}")
    if place not in ("loopback", "namespaces"):
        raise ValueError(f"place = {place!r}: expected 'loopback' or 'namespaces'")
    native = _native.testbed(
        find_program(),
        _given(fabric),
        _given(workload),
        fabric_is_text=_is_text(fabric),
        workload_is_text=_is_text(workload),
        sets=None if changes is None else plain(changes),
        seed=seed,
        namespaces=place == "namespaces",
        logs=None if logs is None else os.fspath(logs),
    )
    return TestbedResults(native)


# For pytest, which takes functions with such names for tests.
testbed.__test__ = False  # type: ignore[attr-defined]


def _is_text(value: Given) -> bool:
    return isinstance(value, str) and "\n" in value


def _given(value: Given) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    return value if _is_text(value) else os.fspath(value)
