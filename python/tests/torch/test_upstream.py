"""PyTorch's own tests of its distributed backends, as they come with the wheel, run on the backend ``fanin``.

Which tests a backend has to pass is decided in there by the backend's name, when the module is imported; so it is imported for gloo, whose
list is the longest for a CPU, and then runs on ``fanin``: in shared memory, or as ``--over`` says. What is left out, and why, is in
``upstream_exclusions.json``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist

# Once, here, instead of in every process of every test.
import fanin.torch

#: Processes of a test. Tests that skip themselves in a world of fewer than 8 get 8.
WORLD = 4
BIG_WORLD = 8

os.environ["BACKEND"] = "gloo"
os.environ["WORLD_SIZE"] = str(WORLD)
#: Goes with this process; those that it forks leave it alone.
FOLDER = tempfile.TemporaryDirectory(prefix="fanin-upstream-")
os.environ["TEMP_DIR"] = FOLDER.name

from torch.testing._internal.distributed import distributed_test  # noqa: E402

distributed_test.BACKEND = os.environ["BACKEND"] = "fanin"

#: Tests that know CPU backends by their names only, inside: they are told gloo's, with the group made already.
BY_NAME = {
    "test_accumulate_gradients_no_sync",
    "test_accumulate_gradients_no_sync_allreduce_hook",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_accumulate_gradients_no_sync_grad_is_view",
}

#: Lists of tests, each with the reason why they are left out; where that is a number of GPUs, they run where there are as many.
EXCLUSIONS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "upstream_exclusions.json").read_text())

#: Tests of groups that are made of some of at least 8 ranks.
BIG = {
    *(f"test_{name}_group_{op}" for name in ("all_reduce", "all_reduce_coalesced", "reduce") for op in ("sum", "product", "min", "max")),
    *(f"test_{name}_group" for name in ("all_gather", "all_gather_coalesced", "broadcast", "gather", "scatter")),
    "test_barrier_group",
    "test_barrier_timeout_group",
    "test_monitored_barrier_failure_order",
    "test_monitored_barrier_wait_all_ranks",
}


@pytest.mark.usefixtures("way")
class TestUpstream(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """One process a rank; forked, since all of them would import PyTorch again otherwise."""

    def setUp(self) -> None:
        super().setUp()
        os.environ["WORLD_SIZE"] = str(BIG_WORLD if self._testMethodName in BIG else WORLD)
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def run_test(self, test_name: str, parent_pipe: Any) -> None:
        if test_name in BY_NAME:
            distributed_test.BACKEND = "gloo"
        super().run_test(test_name, parent_pipe)


def _excluded(reason: str) -> Any:
    def test(self: TestUpstream) -> None:
        raise AssertionError(reason)

    return unittest.skip(reason)(test)


for _excluded_tests in EXCLUSIONS:
    if torch.cuda.device_count() >= _excluded_tests.get("gpus", sys.maxsize):
        continue
    for _name in _excluded_tests["tests"]:
        if not hasattr(TestUpstream, _name):
            raise AssertionError(f"upstream_exclusions.json: this PyTorch has no {_name}")
        setattr(TestUpstream, _name, _excluded(_excluded_tests["reason"]))


def _transport(_rank: int) -> str:
    dist.all_reduce(torch.ones(8))
    return fanin.torch.report().transport


def test_they_go_where_they_are_told(way: str) -> None:
    """Groups of the processes that tests start."""
    assert set(ranks.run(2, _transport)) == {{"memory": "shm", "switch": "udp", "fabric": "fabric"}[way]}
