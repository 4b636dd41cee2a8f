"""Whatever goes wrong, every rank gets an exception that says what and who.

Nothing here is timed: timeouts are so long that only what is tested can end the wait.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import fanin

#: Longer than any test may take.
FOREVER = 3_600.0
#: When the test gives up on a process that hangs, in seconds.
HANG = 300.0


def stubborn(comm: fanin.Communicator) -> list[Any]:
    """Rank 1 raises in the middle of a job; the others say what they were told."""
    try:
        # Others may be told of the end before they are told that all have met.
        comm.barrier()
        if comm.rank == 1:
            raise LookupError("no such row")
        while True:
            comm.allreduce(np.zeros(10))
    except fanin.JobFailedError as error:
        return [str(error), error.rank, error.job, error.cause]


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_an_exception_in_a_block_ends_the_job_and_is_told_to_all(transport: Any) -> None:
    with pytest.raises(fanin.JobFailedError, match="rank 1 of .* LookupError: no such row") as raised:
        fanin.run(stubborn, workers=3, transport=transport, timeout=FOREVER)
    assert raised.value.cause == 1
    assert isinstance(raised.value.__cause__, LookupError)


def told(comm: fanin.Communicator) -> list[Any]:
    if comm.rank == 1:
        comm.abort("the disk is full")
    with pytest.raises(fanin.JobFailedError) as first:
        while True:
            comm.barrier()
    with pytest.raises(fanin.JobFailedError) as second:
        comm.allreduce_async(np.zeros(3)).wait()
    assert str(first.value) == str(second.value), "a failed communicator says the same for ever"
    return [str(first.value), first.value.rank, first.value.cause]


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_a_rank_can_end_the_job_in_its_own_words(transport: Any) -> None:
    for rank, (text, own, cause) in enumerate(fanin.run(told, workers=3, transport=transport, timeout=FOREVER)):
        assert "rank 1 has ended the job: the disk is full" in text
        assert (own, cause) == (rank, 1)


def differ(comm: fanin.Communicator) -> list[Any]:
    with pytest.raises(fanin.JobFailedError) as raised:
        comm.allreduce(np.zeros(3 + comm.rank, np.float32))
        comm.barrier()
    handle = comm.barrier_async()
    with pytest.raises(fanin.JobFailedError):
        handle.wait()
    assert isinstance(handle.exception(), fanin.JobFailedError)
    return [str(raised.value), raised.value.cause]


def test_ranks_that_differ_are_told_so() -> None:
    for text, cause in fanin.run(differ, workers=2, timeout=FOREVER):
        assert "3 f32" in text
        assert "4 f32" in text
        assert cause in (0, 1)


def die(comm: fanin.Communicator) -> list[Any]:
    try:
        comm.barrier()
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            comm.barrier()
    except fanin.JobFailedError as error:
        raise RuntimeError(f"told of rank {error.cause}") from error


def test_a_rank_that_dies_is_named() -> None:
    with pytest.raises(fanin.JobFailedError, match="told of rank 2|exit code -9"):
        fanin.run(die, workers=3, timeout=FOREVER)


def die_in_a_sparse_sum(comm: fanin.Communicator) -> None:
    indices = np.arange(20_000) * 3 + comm.rank
    calls = 0
    try:
        while True:
            comm.allreduce_sparse(indices, np.ones(len(indices), np.float32), 70_000)
            assert comm.sparse_path.startswith("switch: "), comm.sparse_path
            calls += 1
            if comm.rank == 2 and calls == 3:
                threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()
    except fanin.JobFailedError as error:
        raise RuntimeError(f"told of rank {error.cause}") from error


def test_a_rank_that_dies_while_the_switch_sums_sparse_vectors_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FANIN_SPARSE", "switch")
    monkeypatch.setenv("FANIN_PAYLOAD", "256")
    with pytest.raises(fanin.JobFailedError, match="told of rank 2|exit code -9"):
        fanin.run(die_in_a_sparse_sum, workers=3, transport="udp", timeout=FOREVER)


def test_ranks_that_do_not_come_are_named_and_it_is_a_timeout() -> None:
    host = fanin._native.Host("127.0.0.1:0")
    notices: list[str] = []
    with pytest.raises(fanin.JobTimeoutError, match="rank 1") as raised:
        fanin.init(rank=0, world=2, job="lonely", switch=host.address, timeout=0.5, stall_notice=0.05, notices=notices.append)
    assert isinstance(raised.value, TimeoutError)
    assert (raised.value.rank, raised.value.job) == (0, "lonely")
    assert any("waits for rank 1 to join" in notice for notice in notices)
    host.close()


def test_handles_that_are_not_done_in_time_say_so_and_go_on() -> None:
    host = fanin._native.Host("127.0.0.1:0")
    joined: list[fanin.Communicator] = []
    other = threading.Thread(target=lambda: joined.append(fanin.init(rank=1, world=2, job="slow", switch=host.address)))
    other.start()
    with fanin.init(rank=0, world=2, job="slow", switch=host.address) as comm:
        other.join()
        handle = comm.allreduce_async(np.array([1]))
        assert not handle.done()
        with pytest.raises(TimeoutError, match="it goes on"):
            handle.wait(0.01)
        assert handle.exception() is None
        assert joined[0].allreduce(np.array([2])).tolist() == [3]
        assert handle.wait().tolist() == [3]
        joined[0].close()
    host.close()


RANK = """
import sys, fanin, numpy as np
rank, address, transport, how = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
say = lambda text: print(text, flush=True)
try:
    with fanin.init(rank=rank, world=3, job="ctrl-c", switch=address, transport=transport, timeout=3600.0,
                    stall_notice=0.05, notices=lambda text: say("notice " + text)) as comm:
        comm.barrier()
        say("joined")
        if rank == 2:
            sys.stdin.readline()
        if how == "async":
            comm.allreduce_async(np.zeros(100_000)).wait()
        else:
            comm.allreduce(np.zeros(100_000))
        say("not interrupted")
except KeyboardInterrupt:
    say("interrupted")
except fanin.JobFailedError as error:
    say(f"failed {error.cause}: {error}")
"""


class Rank:
    """A rank in a process of its own, which can be sent signals."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", RANK, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        # Whatever happens, nothing waits for ever.
        self.guard = threading.Timer(HANG, self.process.kill)
        self.guard.start()

    def until(self, beginning: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.strip()
        raise AssertionError(f"the process has ended without {beginning!r}")

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Leaves nothing behind, also where the test has failed."""
        self.guard.cancel()
        # Closes the pipes, and waits.
        with self.process:
            self.process.kill()


Start = Callable[..., Rank]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(*arguments: str) -> Rank:
            rank = Rank(*arguments)
            stack.callback(rank.close)
            return rank

        yield begin


@pytest.mark.parametrize(("transport", "how"), [("shm", "call"), ("udp", "call"), ("shm", "async")])
def test_ctrl_c_ends_a_blocked_collective_and_the_others_are_told_who(start: Start, transport: str, how: str) -> None:
    host = fanin._native.Host("127.0.0.1:0", linger=1.0)
    ranks = [start(str(rank), host.address, transport, how) for rank in range(3)]
    for rank in ranks:
        rank.until("joined")
    # Nothing moves for want of rank 2: so rank 1 is in the call.
    ranks[1].until("notice")
    ranks[1].process.send_signal(signal.SIGINT)
    ranks[1].until("interrupted")
    assert "failed 1: " in ranks[0].until("failed")
    ranks[2].tell()
    assert "failed 1: " in ranks[2].until("failed")
    for rank in ranks:
        rank.end()
        assert rank.process.returncode == 0
    host.close()


def test_ctrl_c_ends_waiting_for_ranks_that_do_not_come(start: Start) -> None:
    host = fanin._native.Host("127.0.0.1:0", linger=1.0)
    rank = start("0", host.address, "auto", "call")
    rank.until("notice")
    rank.process.send_signal(signal.SIGINT)
    rank.until("interrupted")
    rank.end()
    host.close()


INTERRUPTED_NOTICE = """
import signal, fanin
def notice(text):
    print("notice", flush=True)
    signal.raise_signal(signal.SIGINT)
try:
    fanin.init(rank=0, world=2, job="notice", switch=ADDRESS, timeout=3600.0, stall_notice=0.05, notices=notice)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_in_the_middle_of_a_notice_is_not_lost() -> None:
    host = fanin._native.Host("127.0.0.1:0", linger=1.0)
    program = INTERRUPTED_NOTICE.replace("ADDRESS", repr(host.address))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG)
    assert (done.stdout.split(), done.stderr) == (["notice", "interrupted"], "")
    host.close()


FORK = """
import os, fanin, numpy as np
with fanin.init(rank=0, world=1, job="parent") as comm:
    child = os.fork()
    if child == 0:
        try:
            assert comm.closed
            comm.allreduce(np.zeros(3))
        except fanin.ClosedError as error:
            assert "forked" in str(error) and error.job == "parent", error
            comm.close()
            with fanin.init(rank=0, world=1) as own:
                own.barrier()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert comm.allreduce(np.ones(3)).tolist() == [1, 1, 1]
"""


def test_a_forked_child_is_told_to_join_a_job_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=HANG)


def parent_goes_on(comm: fanin.Communicator) -> bool:
    """A child that ends, with a copy of the communicator, does not take the parent's job with it."""
    child = os.fork()
    if child == 0:
        comm.close()
        os._exit(0)
    os.waitpid(child, 0)
    return bool(comm.allreduce(np.ones(5))[0] == comm.world)


def test_a_forked_child_does_not_end_the_parents_job() -> None:
    assert fanin.run(parent_goes_on, workers=2, timeout=FOREVER) == [True, True]


LEFT_OPEN = """
import fanin, numpy as np, sys
comm = fanin.init(rank=0, world=1)
handle = comm.allreduce_async(np.zeros(1_000_000))
handle.add_done_callback(lambda handle: None)
"""


def test_a_program_may_end_without_closing_anything() -> None:
    subprocess.run([sys.executable, "-c", LEFT_OPEN], check=True, timeout=HANG)


def test_results_that_cannot_be_sent_are_named() -> None:
    with pytest.raises(fanin.JobFailedError, match="cannot be sent to another process"):
        fanin.run(unsendable, workers=1)
    with pytest.raises(ValueError, match="workers = 0"):
        fanin.run(unsendable, workers=0)


def unsendable(comm: fanin.Communicator) -> Any:
    return lambda: comm
