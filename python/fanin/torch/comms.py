"""The backend of torchcomms: ``torchcomms.new_comm("fanin", device, name=...)``.

Nothing needs to be imported for that: torchcomms finds the backend by the entry point ``torchcomms.backends``. It is the backend of
``torch.distributed`` (:mod:`fanin.torch.backend`) by the names that torchcomms has for the same things. See ``docs/pytorch.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, cast

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
import torchcomms
from torch import Tensor
from torch.distributed import ReduceOp, Store, TCPStore, Work
from torchcomms import TorchCommBackend

from fanin.errors import ArgumentError, ConfigurationError
from fanin.torch.backend import FaninBackend

#: torchcomms' name of the backend.
NAME = "fanin"

#: Where rank and number of ranks stand, by torchcomms' rule the first pair of which both are set.
_PLACES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))

#: torchcomms' operators that are PyTorch's by another name.
_OPERATORS = {"SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"}

#: What hints begin with that are this backend's.
_HINTS = ("fanin.", "torchcomms::fanin::")

#: Hints that are not text.
_FLAGS = {"fixed_point", "reproducible"}
_NUMBERS: dict[str, type] = {"payload": int, "window": int, "stall_notice": float}


def register() -> None:
    """Makes the backend known to torchcomms, once. torchcomms imports this module when a program asks for ``fanin``."""
    if not torchcomms._comms._is_backend_registered(NAME):
        torchcomms.register_backend(NAME, FaninComm)


class FaninComm(TorchCommBackend):
    """One communicator of torchcomms."""

    def __init__(self) -> None:
        """As torchcomms makes it; ``init`` or ``split`` has it join."""
        super().__init__()
        self._name = ""
        self._store: Store | None = None
        self._backend: FaninBackend | None = None

    def init(self, device: torch.device, name: str, options: Any) -> None:
        """Joins the communicator ``name``; returns once all ranks have.

        Raises:
            ConfigurationError: the environment does not say which rank this is, or a hint makes no sense.
        """
        if options.enable_reconfigure:
            raise ConfigurationError("enable_reconfigure = True: expected False, since a communicator of Fanin cannot be reconfigured")
        if device.type not in ("cpu", "cuda"):
            raise ConfigurationError(f"device = {device}: expected one of type cpu or cuda")
        rank, size = _place()
        store = options.store or _store(rank, options.timeout)
        self._join(dist.PrefixStore(f"torchcomms/{name}", store), name, rank, size, options.timeout, settings(options.hints))

    def _join(self, store: Store, name: str, rank: int, size: int, timeout: timedelta, asked: Mapping[str, Any]) -> None:
        self._name, self._store, self._asked = name, store, dict(asked)
        self._backend = FaninBackend(store, rank, size, timeout, pg_options=dict(asked))

    @property
    def backend(self) -> FaninBackend:
        """The backend that has it all.

        Raises:
            ArgumentError: the communicator has not joined, or was finalized.
        """
        if self._backend is None:
            raise ArgumentError(f"the communicator {self._name!r} is not there: it was finalized, or has not joined")
        return self._backend

    def finalize(self) -> None:
        """Leaves."""
        self.backend.shutdown()
        self._backend = None

    def get_rank(self) -> int:
        """This rank."""
        return self.backend.rank()

    def get_size(self) -> int:
        """The number of ranks."""
        return self.backend.size()

    def get_backend_name(self) -> str:
        """``fanin``."""
        return NAME

    def get_comm_name(self) -> str:
        """The communicator's name."""
        return self._name

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls wait that are made from now on."""
        self.backend.set_timeout(timeout)

    def split(self, ranks: Sequence[int], name: str, options: Any) -> FaninComm | None:
        """The communicator of ``ranks``, of which this is one; ``None`` where there are none. What its hints do not say is as in this one.

        Raises:
            ArgumentError: this rank is not one of them, or one is twice or not there.
        """
        rank, members = self.get_rank(), list(ranks)
        if not members:
            return None
        if rank not in members or len(set(members)) != len(members) or not all(0 <= member < self.get_size() for member in members):
            raise ArgumentError(
                f"split: ranks = {members}: expected some of 0 to {self.get_size() - 1}, each once, and rank {rank} among them"
            )
        assert self._store is not None
        part = FaninComm()
        store = dist.PrefixStore(f"split/{name}/{'-'.join(map(str, members))}", self._store)
        part._join(store, name, members.index(rank), len(members), options.timeout, {**self._asked, **settings(options.hints)})
        return part

    # Collectives. One that the caller does not wait for gives its work; of the others nothing is left.

    def all_reduce(self, tensor: Tensor, op: Any, async_op: bool) -> Work | None:
        """Every rank gets the reduction, in place."""
        return _ended(self.backend.allreduce([tensor], _reducing(c10d.AllreduceOptions(), op, async_op)), async_op)

    def reduce(self, tensor: Tensor, root: int, op: Any, async_op: bool) -> Work | None:
        """Rank ``root`` gets the reduction, in place."""
        return _ended(self.backend.reduce([tensor], _rooted(_reducing(c10d.ReduceOptions(), op, async_op), root)), async_op)

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> Work | None:
        """Every rank gets rank ``root``'s tensor."""
        return _ended(self.backend.broadcast([tensor], _rooted(_of(c10d.BroadcastOptions(), async_op), root)), async_op)

    def barrier(self, async_op: bool) -> Work | None:
        """All ranks wait for each other."""
        return _ended(self.backend.barrier(_of(c10d.BarrierOptions(), async_op)), async_op)

    def all_gather(self, tensor_list: list[Tensor], tensor: Tensor, async_op: bool) -> Work | None:
        """Every rank gets all tensors, each in one of its own."""
        return _ended(self.backend.allgather([tensor_list], [tensor], _of(c10d.AllgatherOptions(), async_op)), async_op)

    def all_gather_v(self, tensor_list: list[Tensor], tensor: Tensor, async_op: bool) -> Work | None:
        """The same, of tensors that differ in size: each is broadcast."""
        if len(tensor_list) != self.get_size():
            raise ArgumentError(f"all_gather_v: {len(tensor_list)} outputs, expected one for each of {self.get_size()} ranks")
        own = tensor_list[self.get_rank()]
        if own.shape != tensor.shape or own.dtype != tensor.dtype:
            raise ArgumentError(
                f"all_gather_v: the own output is {tuple(own.shape)} of {own.dtype}, expected {tuple(tensor.shape)} of {tensor.dtype}"
            )
        own.copy_(tensor)
        works = [self.broadcast(output, root, True) for root, output in enumerate(tensor_list)]
        return _all(works, async_op)

    def all_gather_single(self, output: Tensor, given: Tensor, async_op: bool) -> Work | None:
        """Every rank gets all tensors, one behind the other."""
        return _ended(self.backend.all_gather_single(output, given, _of(c10d.AllgatherOptions(), async_op)), async_op)

    def reduce_scatter(self, output: Tensor, input_list: list[Tensor], op: Any, async_op: bool) -> Work | None:
        """A rank gets its part of the reduction, where each part is a tensor of its own."""
        return _ended(self.backend.reduce_scatter([output], [input_list], _reducing(c10d.ReduceScatterOptions(), op, async_op)), async_op)

    def reduce_scatter_v(self, output: Tensor, input_list: list[Tensor], op: Any, async_op: bool) -> Work | None:
        """The same, of parts that differ in size: each is reduced for its rank."""
        if len(input_list) != self.get_size():
            raise ArgumentError(f"reduce_scatter_v: {len(input_list)} inputs, expected one for each of {self.get_size()} ranks")
        own = input_list[self.get_rank()]
        if own.shape != output.shape or own.dtype != output.dtype:
            raise ArgumentError(
                f"reduce_scatter_v: the output is {tuple(output.shape)} of {output.dtype}, expected {tuple(own.shape)} of {own.dtype}"
            )
        # What a reduction leaves at other ranks is not said: of copies.
        parts = [part.clone() for part in input_list]
        works = [self.reduce(part, root, op, True) for root, part in enumerate(parts)]
        return _all(works, async_op, lambda: output.copy_(parts[self.get_rank()]))

    def reduce_scatter_single(self, output: Tensor, given: Tensor, op: Any, async_op: bool) -> Work | None:
        """A rank gets its part of the reduction."""
        return _ended(self.backend.reduce_scatter_single(output, given, _reducing(c10d.ReduceScatterOptions(), op, async_op)), async_op)

    # What gloo does: switches have no part in it.

    def all_to_all_single(self, output: Tensor, given: Tensor, async_op: bool) -> Work | None:
        """Every rank gives each an equal part of one tensor."""
        return self.all_to_all_v_single(output, given, [], [], async_op)

    def all_to_all_v_single(
        self, output: Tensor, given: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], async_op: bool
    ) -> Work | None:
        """Every rank gives each its part of one tensor."""
        options = _of(c10d.AllToAllOptions(), async_op)
        return _ended(self.backend.all_to_all_single(output, given, output_split_sizes, input_split_sizes, options), async_op)

    def all_to_all(self, output_list: list[Tensor], input_list: list[Tensor], async_op: bool) -> Work | None:
        """Every rank gives each its part, as a tensor of its own."""
        return _ended(self.backend.alltoall(output_list, input_list, _of(c10d.AllToAllOptions(), async_op)), async_op)

    def scatter(self, output: Tensor, input_list: list[Tensor], root: int, async_op: bool) -> Work | None:
        """Rank ``root`` gives each its part."""
        inputs = [input_list] if self.get_rank() == root else []
        return _ended(self.backend.scatter([output], inputs, _rooted(_of(c10d.ScatterOptions(), async_op), root)), async_op)

    def gather(self, output_list: list[Tensor], given: Tensor, root: int, async_op: bool) -> Work | None:
        """Rank ``root`` gets all tensors."""
        outputs = [output_list] if self.get_rank() == root else []
        return _ended(self.backend.gather(outputs, [given], _rooted(_of(c10d.GatherOptions(), async_op), root)), async_op)

    def send(self, tensor: Tensor, dst: int, async_op: bool) -> Work | None:
        """To one rank."""
        return _ended(self.backend.send([tensor], dst, 0), async_op)

    def recv(self, tensor: Tensor, src: int, async_op: bool) -> Work | None:
        """From one rank."""
        return _ended(self.backend.recv([tensor], src, 0), async_op)


class _Work(Protocol):
    """What can be waited for."""

    def wait(self) -> Any: ...


class _Together:
    """Several calls that were made together, and what is done once they have ended."""

    def __init__(self, works: Sequence[Work], after: Callable[[], Any]) -> None:
        self._works = list(works)
        self._after = after

    def wait(self) -> None:
        works, self._works = self._works, []
        for work in works:
            work.wait()
        if works:
            self._after()


def _all(works: Sequence[Work | None], async_op: bool, after: Callable[[], Any] = lambda: None) -> Work | None:
    return _ended(_Together([work for work in works if work is not None], after), async_op)


def _ended(work: _Work, async_op: bool) -> Work | None:
    """Work for whoever does not wait."""
    if async_op:
        # torchcomms asks of it that it can be waited for.
        return cast(Work, work)
    work.wait()
    return None


def _of(options: Any, async_op: bool) -> Any:
    options.asyncOp = async_op
    return options


def _rooted(options: Any, root: int) -> Any:
    options.rootRank = root
    return options


def _reducing(options: Any, op: Any, async_op: bool) -> Any:
    """Options with PyTorch's operator for torchcomms'.

    Raises:
        ArgumentError: there is none.
    """
    name = str(op.type).rpartition(".")[2]
    if name not in _OPERATORS:
        raise ArgumentError(f"op = {name}: expected one of {', '.join(sorted(_OPERATORS))}")
    options.reduceOp = getattr(ReduceOp, name)
    return _of(options, async_op)


def _place() -> tuple[int, int]:
    """This rank, and how many there are."""
    for rank, size in _PLACES:
        if rank in os.environ and size in os.environ:
            try:
                place = int(os.environ[rank]), int(os.environ[size])
            except ValueError:
                place = -1, -1
            if not 0 <= place[0] < place[1]:
                raise ConfigurationError(
                    f"{rank} = {os.environ[rank]!r}, {size} = {os.environ[size]!r}: expected a rank, and a number above it"
                )
            return place
    raise ConfigurationError("RANK and WORLD_SIZE are not set: torchrun and mpirun set them, or their own")


def _store(rank: int, timeout: timedelta) -> Store:
    """Where ranks find each other, if the program gives no store: at rank 0, as with torchcomms' own backends."""
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if address is None or port is None or not port.isdigit():
        raise ConfigurationError(f"MASTER_ADDR = {address!r}, MASTER_PORT = {port!r}: expected where ranks meet, or a store in the options")
    # torchrun has a store there already, which is everybody's.
    is_host = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return TCPStore(address, int(port), is_master=is_host, timeout=timeout, wait_for_workers=False, multi_tenant=True)


def settings(hints: Mapping[str, str] | None) -> dict[str, Any]:
    """What a group is asked for (:class:`fanin.torch.Options`), from torchcomms' hints, which are text: those that begin with ``fanin.``.

    Raises:
        ConfigurationError: a hint has another value than its option takes.
    """
    asked: dict[str, Any] = {}
    words: dict[str, bool] = {"true": True, "1": True, "false": False, "0": False}
    for hint, value in (hints or {}).items():
        prefix = next((prefix for prefix in _HINTS if hint.startswith(prefix)), None)
        if prefix is None:
            continue
        key = hint.removeprefix(prefix)
        if key in _FLAGS:
            asked[key] = words.get(value.lower(), value)
            continue
        try:
            asked[key] = _NUMBERS.get(key, str)(value)
        except ValueError:
            raise ConfigurationError(f"hint {hint} = {value!r}: expected a number") from None
    return asked


register()
