"""Jobs of users over a fabric of several switches: the examples come to gloo's parameters, bit by bit, whatever becomes of
packets and switches.

A few of all combinations; ``fabric_matrix.py`` has them all. Where this process may make network namespaces (it needs root), each switch,
the manager and each host is in one of its own; otherwise all are on loopback.
"""

from __future__ import annotations

import shutil

import fabrics
import pytest
from fabrics import Case

CASES = [
    Case("ddp", "canary", trouble="spine killed"),
    Case("fsdp", "a2tp", trouble="spine killed"),
    Case("fsdp", "rina", trouble="leaf restarted"),
    # Ranks that share hosts gather sparse vectors: here each has one of its own.
    Case("topk", "flare", hosts=4, ranks_per_host=1, trouble="spine restarted"),
]


@pytest.mark.skipif(shutil.which("fanin") is None, reason="the program `fanin` is not on PATH")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_bits_as_with_gloo(case: Case) -> None:
    """Also with one packet in a hundred lost, and a switch that dies or is restarted."""
    said = fabrics.trains(case)
    if case.program == "fsdp":
        # Said once, of the sums of FSDP2's gradients, which this system's switches do not scatter.
        assert said.count(f"hosts do each reduce-scatter by themselves, since {case.system} has none") == 1, said
