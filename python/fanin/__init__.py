"""Fanin: in-network aggregation, simulated and with real processes.

:func:`init` joins a job and gives a :class:`Communicator`, with collectives on arrays; :func:`run` starts such a job on this machine;
:func:`simulate` runs a plan in the simulator, :func:`sweep` a large one, here or elsewhere, into a folder of Parquet files, :func:`repro`
the figures of a paper, :func:`testbed` a workload on real processes; :func:`advise` says which switches to buy. The backend for PyTorch is
in ``fanin.torch`` and needs no import: ``torch.distributed.init_process_group("fanin")``. ``python -m fanin`` is the program.
"""

from __future__ import annotations

from fanin._native import __version__
from fanin.advice import Advice, advise
from fanin.communicator import Communicator, Handle, Operator, init
from fanin.errors import (
    ArgumentError,
    ClosedError,
    ConfigurationError,
    FaninError,
    JobFailedError,
    JobTimeoutError,
    PlanError,
)
from fanin.executor import ExecutorError
from fanin.fabric import TestbedResults, testbed
from fanin.local import run
from fanin.operators import CustomOperator
from fanin.pictures import Pictures
from fanin.plans import Plan
from fanin.reproduction import Reproduction, papers, repro
from fanin.simulation import Results, Table, simulate
from fanin.sweeps import Sweep, sweep

__all__ = [
    "Advice",
    "ArgumentError",
    "ClosedError",
    "Communicator",
    "ConfigurationError",
    "CustomOperator",
    "ExecutorError",
    "FaninError",
    "Handle",
    "JobFailedError",
    "JobTimeoutError",
    "Operator",
    "Pictures",
    "Plan",
    "PlanError",
    "Reproduction",
    "Results",
    "Sweep",
    "Table",
    "TestbedResults",
    "__version__",
    "advise",
    "init",
    "papers",
    "repro",
    "run",
    "simulate",
    "sweep",
    "testbed",
]
