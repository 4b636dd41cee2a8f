"""Quantities as plans have them."""

from __future__ import annotations

from typing import TypeAlias

#: ``"4MiB"``, ``"64KiB"``, or a number of bytes.
Bytes: TypeAlias = str | int
#: ``"300ns"``, ``"5us"``, ``"1ms"``.
Time: TypeAlias = str
#: ``"100Gb/s"``.
Rate: TypeAlias = str
#: ``"26.7Mp/s"``.
PacketRate: TypeAlias = str
#: A number of hosts, or a share of all of them such as ``0.5``.
Amount: TypeAlias = int | float | str
#: ``0.01``.
Fraction: TypeAlias = int | float
