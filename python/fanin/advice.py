"""Which switches to buy, for which system, and what that gains."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from fanin import _native

__all__ = ["Advice", "advise"]


class Advice:
    """What to buy, or that nothing is worth its price."""

    #: All of it, with the keys of ``fanin advise --format json``: ``today``, ``offers`` with their ``steps``, ``failures`` and others.
    record: dict[str, Any]

    def __init__(self, record: dict[str, Any], text: str) -> None:
        self.record = record
        self._text = text

    @property
    def buys_nothing(self) -> bool:
        """Whether no purchase within the budget gains enough."""
        return bool(self.record["buys_nothing"])

    @property
    def system(self) -> str:
        """The system to run, after the purchase or without one."""
        return str(self.record["system"])

    @property
    def switches(self) -> list[str]:
        """The switches to replace, in this order."""
        return [str(name) for name in self.record["switches"]]

    @property
    def price(self) -> float:
        """What they cost."""
        return float(self.record["price"])

    @property
    def gain(self) -> tuple[float, float, float]:
        """How much more is reduced than today, as a share: the mean, the least and the most over draws of placement and paths."""
        mean, least, most = self.record["gain"]
        return float(mean), float(least), float(most)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<fanin.Advice: {'nothing' if self.buys_nothing else ', '.join(self.switches)}, {self.system}>"


def advise(
    network: str | os.PathLike[str],
    jobs: str | os.PathLike[str],
    *,
    budget: float = 8.0,
    prices: str | os.PathLike[str] | None = None,
    systems: Sequence[str] | None = None,
    order: Sequence[str] | None = None,
    simulate: bool = True,
    draws: int = 3,
    out: str | os.PathLike[str] | None = None,
) -> Advice:
    """Finds out what to buy for the jobs of a network, as ``fanin advise`` does.

    :param network: a network's file: cable by cable, or a ``[network]`` with a shape.
    :param jobs: a plan without a network, whose jobs name no system.
    :param budget: what may be spent: in the money of ``prices``, or in switches.
    :param prices: a file of ``NAME = PRICE``.
    :param systems: what is compared; all that have rules unless given.
    :param order: the order of purchase; the best one found unless given.
    :param simulate: simulates all that comes near the first choice, and not only what the rules do not know.
    :param draws: draws of placement and paths over which predictions are taken.
    :param out: a folder for the page, and a network and a plan of every step.
    :raises PlanError: where a file is wrong, or no system can do the jobs.
    """
    record, text = _native.advise(
        os.fspath(network),
        os.fspath(jobs),
        budget=budget,
        price_file=None if prices is None else os.fspath(prices),
        systems=None if systems is None else list(systems),
        order=None if order is None else list(order),
        simulate=simulate,
        draws=draws,
        out=None if out is None else os.fspath(out),
    )
    return Advice(json.loads(record), text)
