"""Tests of the PyTorch backend; ``scripts/torch_tests.py`` makes an environment for them and runs them."""

from __future__ import annotations

import os

# Several processes share few cores: threads of PyTorch and of libraries for linear algebra would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
