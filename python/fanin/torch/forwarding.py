"""What is left to gloo: a group with the same ranks that is made when something needs it, and a log line that says what and why.

gloo takes the memory of a tensor for its elements, whatever strides and bits the tensor has, and knows few types. So it gets bytes: plain
tensors as they lie, and of all others copies, from which results are written back.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo, Store

from fanin.torch.elements import copied
from fanin.torch.memory import After, as_bytes, lent_input, lent_output, overlaps

_log = logging.getLogger("fanin.torch")

#: What was told already, in this process.
_told: set[tuple[str, str]] = set()


class Forwarding:
    """The gloo group behind a group of ranks."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, address: str | None) -> None:
        """``address`` is this host's own as the other ranks reach it; ``None`` where gloo is to find out itself."""
        self._store = PrefixStore("gloo", store)
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._address = address
        self._group: ProcessGroupGloo | None = None
        self._lock = threading.Lock()

    def group(self, what: str, why: str) -> ProcessGroupGloo:
        """The gloo group, for the operation ``what``; the first time the log says ``why``."""
        if (what, why) not in _told:
            _told.add((what, why))
            # One voice is enough.
            level = logging.WARNING if self._rank == 0 else logging.DEBUG
            _log.log(level, "%s goes through gloo: %s", what, why)
        if self._group is None:
            with self._lock:
                if self._group is None:
                    self._group = self._make()
        return self._group

    def _make(self) -> ProcessGroupGloo:
        # Its own declarations do not know this class.
        options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = self._devices()
        options._timeout = self._timeout
        options._threads = 2
        return ProcessGroupGloo(self._store, self._rank, self._size, options)

    def _devices(self) -> list[ProcessGroupGloo.Device]:
        # Pairs are connected when they are needed: two ranks that exchange something must not wait for the others.
        if interfaces := os.environ.get("GLOO_SOCKET_IFNAME"):
            return [ProcessGroupGloo.create_device(interface=name, lazy_init=True) for name in interfaces.split(",")]
        if self._address is not None:
            return [ProcessGroupGloo.create_device(hostname=self._address, lazy_init=True)]
        return [ProcessGroupGloo.create_default_device(lazy_init=True)]

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on operations fail that take longer."""
        with self._lock:
            self._timeout = timeout
            if self._group is not None:
                self._group.set_timeout(timeout)

    def close(self) -> None:
        """Ends the gloo group, if there is one."""
        with self._lock:
            group, self._group = self._group, None
        if group is not None:
            group.shutdown()


class Lending:
    """The tensors of one operation, as gloo gets them."""

    def __init__(self) -> None:
        #: What is to be done with results.
        self.after: list[After] = []
        self._taken: list[Tensor] = []

    def outputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Memory for results; to be asked for before inputs."""
        lent = [self._checked(lent_output(tensor, self.after)) for tensor in tensors]
        self._taken += lent
        return [as_bytes(tensor) for tensor in lent]

    def inputs(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """What is sent; a copy where a result is written to the same memory."""
        lent = [self._checked(lent_input(tensor)) for tensor in tensors]
        return [as_bytes(tensor.clone() if any(overlaps(tensor, taken) for taken in self._taken) else tensor) for tensor in lent]

    @staticmethod
    def _checked(tensor: Tensor) -> Tensor:
        copied(tensor.dtype)
        return tensor
