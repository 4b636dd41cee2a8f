"""All combinations of ``test_fabric.py``: takes a quarter of an hour. ``scripts/torch_tests.py --fabric`` runs it, and PyTorch's own
tests over a fabric."""

from __future__ import annotations

import fabrics
import pytest
from fabrics import TROUBLES, Case

#: Two hosts of two ranks each, and four of one.
SHAPES = {"canary": (2, 2), "a2tp": (4, 1), "rina": (2, 2), "flare": (4, 1)}
CASES = [
    Case(program, system, hosts, ranks_per_host, loss, trouble)
    for system, (hosts, ranks_per_host) in SHAPES.items()
    for program in (("ddp", "fsdp", "topk") if system == "flare" else ("ddp", "fsdp"))
    for loss, trouble in [(0.0, "none"), *((0.01, trouble) for trouble in TROUBLES)]
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_bits_as_with_gloo(case: Case) -> None:
    """By each system, in each trouble."""
    fabrics.trains(case)
