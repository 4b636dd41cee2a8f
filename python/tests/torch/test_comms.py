"""The backend of torchcomms: ``torchcomms.new_comm("fanin", ...)``. Skipped where torchcomms is not there: PyPI has an empty package."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from typing import Any

import pytest
import torch

torchcomms = pytest.importorskip(
    "torchcomms", reason="torchcomms is not installed (PyPI has an empty package of that name)", exc_type=ImportError
)

from fanin.errors import ArgumentError, ConfigurationError  # noqa: E402
from fanin.torch import comms  # noqa: E402

WORLD = 3
PATIENCE_S = 120.0


def _rank(body: Callable[[Any, int], Any], rank: int, port: int, hints: dict[str, str], results: Any) -> None:
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    torch.set_num_threads(1)
    try:
        comm = torchcomms.new_comm("fanin", torch.device("cpu"), name="of_a_test", timeout=timedelta(seconds=60), hints=hints)
        results.put((rank, body(comm, rank), None))
        comm.finalize()
    except BaseException as error:
        results.put((rank, None, f"{type(error).__name__}: {error}"))


def run(body: Callable[[Any, int], Any], hints: dict[str, str] | None = None) -> list[Any]:
    """What the body gives at every rank."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    context = get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_rank, args=(body, rank, port, hints or {}, results)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    found = {rank: (value, error) for rank, value, error in (results.get(timeout=PATIENCE_S) for _ in processes)}
    for process in processes:
        process.join(PATIENCE_S)
    errors = {rank: error for rank, (_, error) in found.items() if error}
    assert not errors, errors
    return [found[rank][0] for rank in range(WORLD)]


def _one_way(comm: Any, rank: int, asynchronous: bool) -> None:
    op = torchcomms.ReduceOp

    def done(work: Any) -> None:
        if asynchronous:
            work.wait()

    own = torch.arange(12.0) + rank
    total = sum(torch.arange(12.0) + other for other in range(WORLD))
    vector = own.clone()
    done(comm.all_reduce(vector, op.SUM, asynchronous))
    assert torch.equal(vector, total)
    for operator, expected in ((op.MAX, WORLD - 1.0), (op.MIN, 0.0), (op.AVG, 1.0)):
        one = torch.tensor([float(rank)])
        done(comm.all_reduce(one, operator, asynchronous))
        assert one.item() == expected
    factor = torch.tensor([rank + 2])
    done(comm.all_reduce(factor, op.PRODUCT, asynchronous))
    assert factor.item() == math.prod(range(2, WORLD + 2))
    bits = torch.tensor([1 << rank])
    done(comm.all_reduce(bits, op.BOR, asynchronous))
    assert bits.item() == (1 << WORLD) - 1
    vector = own.clone()
    done(comm.reduce(vector, 1, op.SUM, asynchronous))
    assert rank != 1 or torch.equal(vector, total)
    vector = own.clone()
    done(comm.broadcast(vector, 2, asynchronous))
    assert torch.equal(vector, torch.arange(12.0) + 2)
    done(comm.barrier(asynchronous))
    gathered = [torch.empty(12) for _ in range(WORLD)]
    done(comm.all_gather(gathered, own, asynchronous))
    assert all(torch.equal(part, torch.arange(12.0) + other) for other, part in enumerate(gathered))
    whole = torch.empty(12 * WORLD)
    done(comm.all_gather_single(whole, own, asynchronous))
    assert torch.equal(whole, torch.cat(gathered))
    uneven = [torch.empty(other + 1) for other in range(WORLD)]
    done(comm.all_gather_v(uneven, torch.full((rank + 1,), float(rank)), asynchronous))
    assert all(torch.equal(part, torch.full((other + 1,), float(other))) for other, part in enumerate(uneven))
    part = torch.empty(4)
    done(comm.reduce_scatter_single(part, own, op.SUM, asynchronous))
    assert torch.equal(part, total[4 * rank : 4 * rank + 4])
    part = torch.empty(4)
    done(comm.reduce_scatter(part, list(own.split(4)), op.SUM, asynchronous))
    assert torch.equal(part, total[4 * rank : 4 * rank + 4])
    pieces = list(own[:6].split([1, 2, 3]))
    part, kept = torch.empty(rank + 1), [piece.clone() for piece in pieces]
    done(comm.reduce_scatter_v(part, pieces, op.SUM, asynchronous))
    assert torch.equal(part, list(total[:6].split([1, 2, 3]))[rank])
    assert all(torch.equal(piece, copy) for piece, copy in zip(pieces, kept, strict=True)), "inputs stay as they are"
    exchanged = torch.empty(12)
    done(comm.all_to_all_single(exchanged, own, asynchronous))
    assert torch.equal(exchanged, torch.cat([(torch.arange(12.0) + other)[4 * rank : 4 * rank + 4] for other in range(WORLD)]))
    outputs = [torch.empty(4) for _ in range(WORLD)]
    done(comm.all_to_all(outputs, list(own.split(4)), asynchronous))
    assert torch.equal(torch.cat(outputs), exchanged)
    part = torch.empty(4)
    done(comm.scatter(part, list(own.split(4)) if rank == 1 else [], 1, asynchronous))
    assert torch.equal(part, (torch.arange(12.0) + 1)[4 * rank : 4 * rank + 4])
    rooms = [torch.empty(4) for _ in range(WORLD)] if rank == 2 else []
    done(comm.gather(rooms, part, 2, asynchronous))
    assert rank != 2 or torch.equal(torch.cat(rooms), torch.arange(12.0) + 1)


def _collectives(comm: Any, rank: int) -> None:
    op = torchcomms.ReduceOp
    assert (comm.get_rank(), comm.get_size(), comm.get_backend(), comm.get_name()) == (rank, WORLD, "fanin", "of_a_test")
    for asynchronous in (False, True):
        _one_way(comm, rank, asynchronous)
    if rank < 2:
        message = torch.full((3,), 7.0) if rank == 0 else torch.empty(3)
        (comm.send if rank == 0 else comm.recv)(message, 1 - rank, False)
        assert message.tolist() == [7.0] * 3
    ours = [0, 2] if rank != 1 else [1]
    part = comm.split(ours, "some")
    assert (part.get_rank(), part.get_size()) == (ours.index(rank), len(ours))
    one = torch.ones(1)
    part.all_reduce(one, op.SUM, False)
    assert one.item() == len(ours)
    part.finalize()
    with pytest.raises(Exception, match="expected one of"):
        comm.all_reduce(torch.ones(1), op.PREMUL_SUM(2.0), False)
    with pytest.raises(Exception, match="all_gather_v: the own output"):
        comm.all_gather_v([torch.empty(1) for _ in range(WORLD)], torch.ones(2), False)


@pytest.mark.parametrize("hints", [{}, {"fanin.transport": "udp", "fanin.reproducible": "true", "gloo.other": "of another backend"}])
def test_all_collectives_give_what_they_must(hints: dict[str, str]) -> None:
    run(_collectives, hints)


def _path(comm: Any, _rank: int) -> str:
    return str(comm.get_backend_impl().backend.communicator.path)


def test_vectors_go_by_the_switch(switch: str) -> None:
    for path in run(_path, {"fanin.switch": switch, "fanin.transport": "udp"}):
        assert "to the switch at 127.0.0.1" in path and "in this process" not in path


def test_hints_are_options_and_wrong_ones_are_told() -> None:
    assert comms.settings({"fanin.payload": "1024", "fanin.reproducible": "block", "torchcomms::fanin::fixed_point": "1", "x.y": "z"}) == {
        "payload": 1024,
        "reproducible": "block",
        "fixed_point": True,
    }
    with pytest.raises(ConfigurationError, match="hint fanin.window = 'many': expected a number"):
        comms.settings({"fanin.window": "many"})
    with pytest.raises(ConfigurationError, match="RANK and WORLD_SIZE are not set"):
        comms._place()
    with pytest.raises(ArgumentError, match="it was finalized, or has not joined"):
        comms.FaninComm().get_rank()


def test_an_option_that_is_not_there_is_an_error_at_all_ranks() -> None:
    with pytest.raises(AssertionError, match="colour"):
        run(_path, {"fanin.colour": "red"})
