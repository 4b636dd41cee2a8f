"""Tests of the PyTorch backend; ``scripts/torch_tests.py`` makes an environment for them and runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

# Several processes share few cores: threads of PyTorch and of libraries for linear algebra would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def switch() -> Iterator[str]:
    """``HOST:PORT`` of a ``fanin switch`` in another process."""
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
                yield found.group(0)
                break
        else:
            pytest.fail(f"the switch has ended: {said}")
    finally:
        process.terminate()
        process.communicate()
