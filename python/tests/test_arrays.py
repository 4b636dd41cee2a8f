"""What counts as an array, what is copied, and what is refused. A job of one rank is enough for that."""

from __future__ import annotations

import array
import pickle
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fanin
from fanin._arrays import view_input, view_output


@pytest.fixture
def comm() -> Iterator[fanin.Communicator]:
    with fanin.init(rank=0, world=1, job="arrays") as communicator:
        yield communicator


class OnlyDlpack:
    """An array of a library that has neither numpy's arrays nor buffers."""

    def __init__(self, inner: np.ndarray[Any, Any]) -> None:
        self.inner = inner

    def __dlpack__(self, **settings: Any) -> Any:
        return self.inner.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.inner.__dlpack_device__()


def test_without_any_setting_there_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FANIN_RANK", "FANIN_WORLD", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with fanin.init() as comm:
        assert (comm.rank, comm.world, comm.transport, comm.closed) == (0, 1, "alone", False)
        assert comm.allreduce(np.arange(3)).tolist() == [0, 1, 2]
        assert "rank=0 world=1 alone" in repr(comm)
    assert comm.closed


def test_every_kind_of_array_is_read_where_it_lies(comm: fanin.Communicator) -> None:
    numbers = np.arange(6, dtype=np.int16)
    for given in (numbers, memoryview(numbers), array.array("h", range(6)), OnlyDlpack(numbers), numbers.reshape(2, 3)):
        assert np.ravel(comm.allreduce(given)).tolist() == list(range(6))
    assert view_input(numbers).address == numbers.ctypes.data
    assert view_input(memoryview(numbers)).address == numbers.ctypes.data
    assert view_input(OnlyDlpack(numbers)).address == numbers.ctypes.data
    assert view_output(numbers).address == numbers.ctypes.data
    raw = bytearray(b"\x01\x02")
    assert comm.broadcast(raw) is raw
    assert comm.allreduce(2.5) == 2.5
    assert comm.allreduce([1, 2]).tolist() == [1, 2]
    halves = np.array([1.5, -2.0], dtype=ml_dtypes.bfloat16)
    assert comm.allreduce(halves).dtype == halves.dtype


def test_what_does_not_lie_contiguously_is_copied(comm: fanin.Communicator) -> None:
    table = np.arange(12).reshape(3, 4)
    assert comm.allreduce(table[:, 1]).tolist() == [1, 5, 9]
    assert comm.allreduce(table.T).tolist() == table.T.tolist()
    with pytest.raises(fanin.ArgumentError, match="not contiguous") as raised:
        comm.allreduce(table[:, 1], out=table[:, 1])
    assert (raised.value.rank, raised.value.job, raised.value.cause) == (0, "arrays", None)


def test_a_result_is_written_where_out_says(comm: fanin.Communicator) -> None:
    given, out = np.arange(4.0), np.zeros(4)
    assert comm.allreduce(given, out=out) is out
    assert out.tolist() == [0, 1, 2, 3]
    view = memoryview(bytearray(4))
    assert comm.allreduce(np.arange(4, dtype=np.uint8), out=view) is view
    assert bytes(view) == b"\x00\x01\x02\x03"


def frozen() -> np.ndarray[Any, Any]:
    numbers = np.zeros(4)
    numbers.flags.writeable = False
    return numbers


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda comm: comm.allreduce(np.zeros(4), out=np.zeros(5)), r"out has shape \(5,\) of float64: expected \(4,\) of float64"),
        (lambda comm: comm.allreduce(np.zeros(4), out=np.zeros(4, "f4")), "of float32: expected"),
        (lambda comm: comm.allreduce(np.zeros(4), out=frozen()), "out is read-only"),
        (lambda comm: comm.allreduce(np.zeros(4), out=[0, 0, 0, 0]), "out is of type list: expected an array"),
        (lambda comm: comm.allreduce(np.zeros(4), "xor"), "no xor of f64"),
        (lambda comm: comm.allreduce(np.zeros(4, int), "avg"), "no avg of i64"),
        (lambda comm: comm.allreduce(np.zeros(4), "median"), "no operator is called `median`"),
        (lambda comm: comm.allreduce(np.zeros(2, bool), "sum"), "no sum of bool: there are and, max"),
        (lambda comm: comm.allreduce(np.array(["a"])), "elements of type str32 cannot be reduced"),
        (lambda comm: comm.allreduce(np.array([None])), "an array of Python objects"),
        (lambda comm: comm.allreduce(np.zeros(3, ">f4")), "bytes in another order"),
        (lambda comm: comm.allreduce(object()), "Python objects"),
        (lambda comm: comm.broadcast(np.zeros(3), 1), "root = 1: there are only ranks 0 to 0"),
        (lambda comm: comm.reduce(np.zeros(3), root=-1), "root = -1: there are only"),
        (lambda comm: comm.reduce_scatter(np.float64(1)), r"shape is \(\): expected a first dimension"),
        (lambda comm: comm.split(-1), "color = -1: expected 0 to"),
    ],
)
def test_what_does_not_fit_is_refused_in_words_and_changes_nothing(comm: fanin.Communicator, call: Any, message: str) -> None:
    with pytest.raises(fanin.ArgumentError, match=message) as raised:
        call(comm)
    assert isinstance(raised.value, ValueError)
    assert comm.allreduce(np.arange(3)).tolist() == [0, 1, 2]


def test_memory_that_overlaps_is_refused(comm: fanin.Communicator) -> None:
    numbers = np.zeros(8)
    with pytest.raises(fanin.ArgumentError, match="input and output overlap"):
        comm.allreduce(numbers[:6], out=numbers[2:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 2, "world": 2, "switch": "h:1"}, "rank = 2: expected 0 to 1"),
        ({"rank": -1, "world": 2}, "rank = -1: expected a rank"),
        ({"rank": 0, "world": 2}, 'no place to meet: give switch="HOST:PORT"'),
        ({"rank": 0, "world": 2, "rendezvous": "nowhere"}, "rendezvous = nowhere: expected HOST:PORT"),
        ({"timeout": -1.0}, "timeout = -1.0: expected a time, such as"),
        ({"stall_notice": "5 parsecs"}, "stall_notice = 5 parsecs: expected a time, such as"),
        ({"transport": "rdma"}, "transport = rdma: expected auto or udp or shm"),
        ({"reproducible": "row"}, "reproducible = row: expected 0 or 1 or element or block or tree"),
        ({"reproducible": ""}, 'reproducible = "": expected True, False, element, block or tree'),
        ({"world": 2}, "FANIN_RANK is not set"),
        ({"bind": "eth0"}, "bind = eth0: expected an IP address"),
        ({"rank": 0, "world": 2, "switch": "h:1", "token": "@/nowhere"}, "token = @/nowhere: expected a token, or `@` and a file"),
        ({"rank": 0, "world": 2, "switch": "h:1", "tls": "sha256:12"}, "tls = sha256:12: expected sha256: and 64 hexadecimal digits"),
        ({"rank": 0, "world": 2, "switch": "h:1", "tls": "/nowhere/ca.pem"}, "tls = /nowhere/ca.pem: expected files that can be read"),
    ],
)
def test_wrong_settings_are_named_as_they_were_given(settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FANIN_RANK", "FANIN_WORLD", "FANIN_SWITCH", "FANIN_RENDEZVOUS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(fanin.ConfigurationError) as raised:
        fanin.init(**settings)
    assert message in str(raised.value)


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FANIN_RANK", "3")
    monkeypatch.setenv("FANIN_WORLD", "4")
    monkeypatch.setenv("FANIN_SWITCH", "127.0.0.1:1")
    monkeypatch.setenv("FANIN_JOB", "of-the-environment")
    with fanin.init(rank=0, world=1) as comm:
        assert (comm.rank, comm.world, comm.job) == (0, 1, "of-the-environment")


def test_errors_travel_between_processes_with_all_that_they_say() -> None:
    error = fanin.JobTimeoutError("text", rank=1, job="j", cause=2)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is fanin.JobTimeoutError
    assert (str(again), again.rank, again.job, again.cause) == ("text", 1, "j", 2)
    assert isinstance(again, TimeoutError)
    assert isinstance(again, fanin.JobFailedError)
    assert isinstance(again, fanin.FaninError)
