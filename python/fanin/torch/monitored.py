"""A barrier that says who is missing, by the group's store: its messages are the ones that PyTorch's users know from gloo."""

from __future__ import annotations

import time
from datetime import timedelta

from torch.distributed import DistBackendError, PrefixStore, Store


class MonitoredBarrier:
    """Counts the barriers of a group."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store = PrefixStore("monitored", store)
        self._rank = rank
        self._size = size
        self._count = 0

    def wait(self, timeout: timedelta, wait_all_ranks: bool) -> None:
        """Returns once all ranks have come.

        Raises:
            DistBackendError: rank 0 names the first rank that has not come within ``timeout``, or with ``wait_all_ranks`` all of them; the
                others are told that there is one.
        """
        self._count += 1
        store = PrefixStore(str(self._count), self._store)
        if self._rank == 0:
            missing = self._missing(store, timeout, wait_all_ranks)
            text = _failure(missing, timeout) if missing else ""
            store.set("verdict", text)
            if text:
                raise DistBackendError(f"[Rank 0]: {text}")
            return
        store.set(f"{self._rank}", "")
        cause: RuntimeError | None = None
        try:
            store.wait(["verdict"], timeout)
            text = store.get("verdict").decode()
        except RuntimeError as error:
            text, cause = str(error), error
        if text:
            raise DistBackendError(
                f"[Rank {self._rank}]: Rank {self._rank} successfully reached monitoredBarrier,"
                f" but received errors while waiting for send/recv from rank 0: {text}"
            ) from cause

    def _missing(self, store: Store, timeout: timedelta, wait_all_ranks: bool) -> list[int]:
        deadline = time.monotonic() + timeout.total_seconds()
        missing: list[int] = []
        for rank in range(1, self._size):
            left = deadline - time.monotonic()
            if left <= 0 and not missing and not store.check([f"{rank}"]):
                return [0]
            try:
                store.wait([f"{rank}"], timedelta(seconds=max(left, 0.001)))
            except RuntimeError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        return missing


def _failure(missing: list[int], timeout: timedelta) -> str:
    limit = f"{timeout.total_seconds() * 1e3:.0f} ms"
    if missing == [0]:
        return f"Rank 0 timed out in monitoredBarrier after {limit}."
    ranks = ", ".join(str(rank) for rank in missing)
    return f"Rank{'s' if len(missing) > 1 else ''} {ranks} failed to pass monitoredBarrier in {limit}"
