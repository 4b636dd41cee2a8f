"""A call that runs: waiting for it, futures, errors.

PyTorch keeps a Python ``Work`` behind an object of its own which hands on ``wait`` and ``get_future`` only. So these two carry everything:
both raise what went wrong, on every rank, and a future is completed whatever happens.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Work
from torch.futures import Future

from fanin.errors import FaninError
from fanin.torch.errors import CollectiveTimeoutError, of_collective, of_gloo
from fanin.torch.memory import After

if TYPE_CHECKING:
    from fanin._native import Communicator, Handle

#: What PyTorch passes for "as long as the group's timeout".
NO_TIMEOUT = timedelta(0)

#: Completes futures. Callbacks of users run here and may wait for further collectives, so there must always be another thread: it makes
#: one only where all others are busy.
_COMPLETIONS = ThreadPoolExecutor(max_workers=256, thread_name_prefix="fanin-futures")


class FaninWork(Work):
    """One or more calls of a communicator that were made together."""

    def __init__(
        self,
        name: str,
        comm: Communicator,
        timeout_s: float,
        result: Any,
        *,
        handles: Sequence[Handle] = (),
        error: BaseException | None = None,
        after: Sequence[After] = (),
    ) -> None:
        """``timeout_s`` is how long the calls wait, for messages; ``after`` is done before results are looked at."""
        super().__init__()
        self._name = name
        self._comm = comm
        self._timeout_s = timeout_s
        self._result = result
        self._handles = handles
        self._error = error
        self._after = after
        self._ended = not handles and not after
        self._future: Future[Any] | None = None
        self._lock = threading.Lock() if handles or after else None

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Waits for the calls to end. A ``timeout`` ends the waiting with an error here only: the calls go on, and so does the group.

        Raises:
            CollectiveError: the group has failed.
            CollectiveTimeoutError: because a rank did not arrive in time.
        """
        if not self._ended:
            if timeout > NO_TIMEOUT:
                self._wait_at_most(timeout.total_seconds())
            self._settle()
        if self._error is not None:
            raise self._error
        return True

    def _wait_at_most(self, limit_s: float) -> None:
        if self._handles and not _has_ended(self._handles[-1], limit_s):
            text = f"{self._name} has not ended within the timeout of {limit_s:g} s that wait() was given"
            raise CollectiveTimeoutError(text, rank=self._comm.rank, job=self._comm.job)

    def _settle(self) -> None:
        """Waits for the end, as long as it takes, and does once what is to be done then."""
        for handle in self._handles:
            _has_ended(handle, None)
        if self._lock is None:
            return
        with self._lock:
            if self._ended:
                return
            errors = [error for error in (handle.error() for handle in self._handles) if error is not None]
            if errors and self._error is None:
                self._error = of_collective(self._name, self._timeout_s, errors[0])
            if self._error is None:
                for step in self._after:
                    step()
            self._after, self._ended = (), True

    def get_future(self) -> Future[Any]:
        """A future of the results, which raises what ``wait`` would raise."""
        if self._future is None:
            base: Future[Any] = Future(devices=_devices(self._result))
            # An error has to come out of a callback: one that is set on the future itself is taken for a value by C++.
            self._future = base.then(self._value)
            self._complete(base)
        return self._future

    def _value(self, _base: Future[Any]) -> Any:
        self.wait()
        return self._result

    def _complete(self, base: Future[Any]) -> None:
        if self.is_completed():
            base.set_result(None)
        else:
            # Calls end in the order in which they were made.
            self._handles[-1].add_done_callback(lambda _handle: _COMPLETIONS.submit(base.set_result, None))

    def is_completed(self) -> bool:
        """Whether the calls have ended, well or not."""
        return self._ended or all(handle.done() for handle in self._handles)

    def is_success(self) -> bool:
        """Whether the calls have ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What went wrong, if the calls have ended."""
        if self.is_completed():
            self._settle()
        return self._error

    def result(self) -> Any:
        """The tensors with the results, once there are."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """The same as waiting."""
        self.wait()


def _has_ended(handle: Handle, limit_s: float | None) -> bool:
    """Waits for a call, for so long at most; whether it has ended, well or not."""
    try:
        return handle.wait(limit_s)
    except FaninError:
        return True


def _devices(result: Any) -> list[int | str | torch.device]:
    """The GPUs of the tensors in ``result``, for futures to order streams by."""
    if isinstance(result, torch.Tensor):
        return [result.device] if result.device.type == "cuda" else []
    if isinstance(result, list | tuple):
        return list(dict.fromkeys(device for item in result for device in _devices(item)))
    return []


class GatheredWork(Work):
    """Several pieces of work, waited for together."""

    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Waits for all."""
        for work in self._works:
            work.wait(timeout)
        return True

    def get_future(self) -> Future[Any]:
        """A future of all results."""
        gathered: Future[Any] = torch.futures.collect_all([work.get_future() for work in self._works])
        return gathered.then(lambda futures: [future.wait() for future in futures.wait()])

    def is_completed(self) -> bool:
        """Whether all have ended."""
        return all(work.is_completed() for work in self._works)


class ForwardedWork(Work):
    """An operation that gloo does, with what is to be done with its results, and errors as all others have them."""

    def __init__(self, name: str, rank: int, peer: int | None, work: Work, result: Any, after: Sequence[After]) -> None:
        """``peer`` is the only rank that the operation waits for, where there is one."""
        super().__init__()
        self._name = name
        self._rank = rank
        self._peer = peer
        self._work = work
        self._result = result
        self._after = after
        self._error: BaseException | None = None
        self._ended = False
        self._future: Future[Any] | None = None
        self._lock = threading.Lock()

    def then(self, after: Sequence[After], result: Any) -> None:
        """Before it is waited for: what is to be done besides in the end, and what the result is."""
        self._after, self._result = [*self._after, *after], result

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Waits for the end. After a ``timeout`` the operation is given up, as gloo does it.

        Raises:
            CollectiveError: It has failed.
            CollectiveTimeoutError: Because a rank did not arrive in time.
        """
        with self._lock:
            if not self._ended:
                try:
                    self._work.wait(timeout) if timeout > NO_TIMEOUT else self._work.wait()
                    for step in self._after:
                        step()
                except RuntimeError as error:
                    self._error = of_gloo(self._name, self._rank, self._peer, error)
                self._after, self._ended = (), True
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> Future[Any]:
        """A future of the results, which raises what ``wait`` would raise."""
        if self._future is None:
            base: Future[Any] = Future(devices=_devices(self._result))
            self._future = base.then(self._value)
            _COMPLETIONS.submit(self._complete, base)
        return self._future

    def _complete(self, base: Future[Any]) -> None:
        try:
            self.wait()
        except RuntimeError:
            # The future's own callback raises it.
            pass
        finally:
            base.set_result(None)

    def _value(self, _base: Future[Any]) -> Any:
        self.wait()
        return self._result

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended or self._work.is_completed()

    def result(self) -> Any:
        """The tensors with the results, once there are."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """The same as waiting."""
        self.wait()
