"""Tests of the PyTorch backend; ``scripts/torch_tests.py`` makes an environment for them and runs them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from fabrics import Fabric

# Several processes share few cores: threads of PyTorch and of libraries for linear algebra would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def switch(switch_process: tuple[str, subprocess.Popen[str]]) -> str:
    """``HOST:PORT`` of a ``fanin switch`` in another process."""
    return switch_process[0]


@pytest.fixture
def switch_process() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The same, with the process."""
    with running_switch() as running:
        yield running


@contextlib.contextmanager
def running_switch() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A ``fanin switch`` on loopback, and where it listens."""
    program = shutil.which("fanin")
    if program is None:
        pytest.skip("the program `fanin` is not on PATH")
    process = subprocess.Popen([program, "switch", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                yield found.group(0), process
                break
        else:
            pytest.fail(f"the switch has ended: {said}")
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def fabric() -> Iterator[str]:
    """``HOST:PORT`` of the manager of a fabric of four switches and two hosts, on loopback."""
    with running_fabric(2) as running:
        yield running.manager


@contextlib.contextmanager
def running_fabric(hosts: int) -> Iterator[Fabric]:
    """A fabric of four switches on loopback."""
    program = shutil.which("fanin")
    if program is None:
        pytest.skip("the program `fanin` is not on PATH")
    with Fabric(program, hosts) as running:
        yield running


@pytest.fixture(scope="session")
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """The way that ``--over`` asks for, in the environment of all that is started meanwhile."""
    over = str(request.config.getoption("--over"))
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if over == "switch":
            patch.setenv("FANIN_SWITCH", stack.enter_context(running_switch())[0])
            patch.setenv("FANIN_TRANSPORT", "udp")
        elif over == "fabric":
            # A host for each rank of the largest tests.
            patch.setenv("FANIN_FABRIC", stack.enter_context(running_fabric(8)).manager)
        yield over


def pytest_addoption(parser: pytest.Parser) -> None:
    """How PyTorch's own tests go."""
    what = "what test_upstream.py goes over: shared memory, `fanin switch`, or a fabric of four switches"
    parser.addoption("--over", choices=["memory", "switch", "fabric"], default="memory", help=what)
