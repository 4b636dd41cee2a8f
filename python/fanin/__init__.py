"""Fanin: in-network aggregation, simulated and for real."""

from __future__ import annotations

from fanin._native import __version__
from fanin.errors import (
    ArgumentError,
    ClosedError,
    ConfigurationError,
    FaninError,
    JobFailedError,
    JobTimeoutError,
    PlanError,
)

__all__ = [
    "ArgumentError",
    "ClosedError",
    "ConfigurationError",
    "FaninError",
    "JobFailedError",
    "JobTimeoutError",
    "PlanError",
    "__version__",
]
