"""What is left to gloo: a group with the same ranks that is made when something needs it, and a log line that says what and why."""

from __future__ import annotations

import logging
import os
import threading
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, ProcessGroupGloo, Store

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

    def close(self) -> None:
        """Ends the gloo group, if there is one."""
        with self._lock:
            group, self._group = self._group, None
        if group is not None:
            group.shutdown()
