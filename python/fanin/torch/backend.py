"""What PyTorch calls: the collectives of a process group.

PyTorch looks the methods up by name; one that is missing here raises where it is called. Every method returns work that has begun, or has
ended already where the caller is going to wait at once (``asyncOp`` is false): then the call runs in the caller's thread, which is faster.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, ErrorType
from torch.autograd import profiler
from torch.distributed import PrefixStore, ReduceOp, Store, Work

from fanin._native import Communicator
from fanin.errors import FaninError
from fanin.torch.elements import Elements, reduced
from fanin.torch.errors import of_collective
from fanin.torch.forwarding import Forwarding
from fanin.torch.meeting import HOSTING, Place, meet, own_address
from fanin.torch.memory import write_back
from fanin.torch.monitored import MonitoredBarrier
from fanin.torch.program import Program
from fanin.torch.sparse import SparseTensor
from fanin.torch.work import FaninWork, GatheredWork

_log = logging.getLogger("fanin.torch")

#: Why some operations are never the communicator's.
_NOT_COLLECTIVE = "switches have no part in messages between two ranks"
_NOT_REDUCED = "a switch has nothing to sum there"

#: The communicator takes timeouts in this range, in seconds.
_TIMEOUT_RANGE_S = (0.01, 86_400.0)

#: Backends that have not been shut down. PyTorch itself does not always hold the Python object (TORCH_DISTRIBUTED_DEBUG=DETAIL), and
#: without that the methods below would vanish.
_open: set[FaninBackend] = set()


def create(options: Any, _backend_options: Any) -> FaninBackend:
    """Makes the backend of a new group; returns once all of the group's ranks have joined."""
    return FaninBackend(options.store, options.group_rank, options.group_size, options.timeout)


class FaninBackend(Backend):
    """The backend of one group."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta | float) -> None:
        super().__init__(rank, size)
        timeout = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
        self._rank = rank
        self._size = size
        self._options = Backend.Options("fanin", timeout=timeout)
        self._timeout_s = min(max(timeout.total_seconds(), _TIMEOUT_RANGE_S[0]), _TIMEOUT_RANGE_S[1])
        #: A timeout that was set later; the communicator knows the first one only.
        self._limit_s: float | None = None
        self._place: Place | None = None
        self._failed = False
        self._sequence = 0
        self._coalesced: list[Work] | None = None
        store = PrefixStore("fanin", store)
        local = True
        if size > 1:
            self._place = meet(store, rank, size, timeout)
            local = self._place.local
        self._comm = self._join()
        _log.info("rank %d of %d: %s", rank, size, self._comm.path)
        self._forwarding = Forwarding(store, rank, size, timeout, own_address(store, local) if local else os.environ.get("FANIN_BIND"))
        self._monitored = MonitoredBarrier(store, rank, size)
        _open.add(self)

    def _join(self) -> Communicator:
        place = self._place or Place(job="torch/alone")
        try:
            return Communicator.from_env(
                rank=self._rank,
                world=self._size,
                job=place.job,
                switch=place.switch,
                rendezvous=place.rendezvous,
                timeout=self._timeout_s,
                notices=_log.warning,
            )
        except FaninError as error:
            self._leave_host()
            raise of_collective("joining a group", self._timeout_s, error) from None

    # What the group is.

    def getBackendName(self) -> str:  # noqa: N802, since it is PyTorch's name
        """The name in PyTorch's messages."""
        return "fanin"

    @property
    def options(self) -> Backend.Options:
        """The timeout."""
        return self._options

    @property
    def supports_splitting(self) -> bool:
        """``dist.split_group`` works."""
        return True

    # PyTorch asks for each of these by way of the class; without an answer here it would ask itself again, for ever.

    supports_coalescing = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    supports_abort_hooks = False
    _supports_time_estimate = False

    def split(self, store: Store, ranks: Sequence[int], options: Backend.Options) -> FaninBackend:
        """The group of ``ranks``, of which this rank is one."""
        if self._rank not in ranks:
            raise ValueError(
                f"split_group: rank {self._rank} is in none of the groups, which a backend in Python cannot tell PyTorch:"
                " give every rank a group, or use new_group"
            )
        return FaninBackend(PrefixStore("split", store), list(ranks).index(self._rank), len(ranks), options._timeout)

    def merge(self, store: Store, options: Backend.Options, rank: int, size: int) -> FaninBackend:
        """A group of this one's ranks and others."""
        return FaninBackend(PrefixStore("merge", store), rank, size, options._timeout)

    def perform_nocolor_split(self, _device: torch.device) -> None:
        """Ranks that are not in a new group have nothing to do."""

    def eager_connect_single_device(self, _device: torch.device | None) -> None:
        """Ranks are connected from the beginning."""

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on collectives fail that take longer."""
        self._limit_s = timeout.total_seconds()
        self._options._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def get_error(self) -> ErrorType:
        """Whether the group has failed."""
        return ErrorType.COMM_ERROR if self._failed else ErrorType.SUCCESS

    def _wait_for_pending_works(self) -> None:
        pass

    # The end.

    def shutdown(self) -> None:
        """Leaves the group, after calls that still run."""
        if self not in _open:
            return
        _open.discard(self)
        self._comm.close()
        self._leave_host()
        self._forwarding.close()

    def abort(self) -> None:
        """Ends the group for all ranks."""
        if self in _open:
            try:
                self._comm.abort("the group was aborted")
            except FaninError:
                _log.debug("the group has ended already")
            self._failed = True
            self.shutdown()

    def _leave_host(self) -> None:
        if self._place is not None and self._rank == 0:
            HOSTING.close(self._place)
        self._place = None

    # Calls.

    def _run(self, name: str, program: Program, options: Any, result: Any) -> Work:
        """Makes the calls of a program."""
        self._sequence += 1
        # One that is not given is negative.
        limit_s = timeout.total_seconds() if (timeout := options.timeout).days >= 0 and timeout else self._limit_s
        if not options.asyncOp and limit_s is None and self._coalesced is None:
            if profiler._is_profiler_enabled:
                with profiler.record_function(name):
                    return self._run_here(name, program, result)
            return self._run_here(name, program, result)
        return self._run_behind(name, program, result, limit_s)

    def _run_here(self, name: str, program: Program, result: Any) -> Work:
        error = None
        try:
            for step in program.steps:
                self._comm.call(*step)
        except ValueError:
            raise
        except FaninError as raised:
            self._failed = True
            error = of_collective(name, self._timeout_s, raised)
        return FaninWork(name, self._comm, self._timeout_s, result, error=error, after=program.after)

    def _run_behind(self, name: str, program: Program, result: Any, limit_s: float | None) -> Work:
        span = profiler.record_function(name) if profiler._is_profiler_enabled else None
        if span is not None:
            span.__enter__()
        handles, error = [], None
        try:
            for step in program.steps:
                handles.append(self._comm.call_async(*step, keep=program.keep))
        except ValueError:
            raise
        except FaninError as raised:
            self._failed = True
            error = of_collective(name, self._timeout_s, raised)
        work = FaninWork(name, self._comm, self._timeout_s, result, handles=handles, error=error, after=program.after, limit_s=limit_s)
        if span is not None:
            span._call_end_callbacks_on_future(work.get_future())
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _forward(self, what: str, why: str, *arguments: Any) -> Work:
        """Leaves an operation to gloo, under gloo's name for it."""
        self._sequence += 1
        work: Work = getattr(self._forwarding.group(what, why), what)(*arguments)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _elements(self, tensors: Sequence[Tensor], op: ReduceOp) -> Elements | str:
        """How the communicator sees a reduction, or why it cannot do it."""
        first = tensors[0]
        if first.layout != torch.strided:
            return "sparse tensors are not computed by switches"
        if len(tensors) > 1 and any(tensor.dtype != first.dtype for tensor in tensors):
            raise ValueError(f"tensors of several types: {sorted({str(tensor.dtype) for tensor in tensors})}")
        return reduced(first.dtype, op.op)

    def allreduce(self, tensors: list[Tensor], options: Any) -> Work:
        """Every rank gets the reduction, in place."""
        if tensors[0].layout == torch.sparse_coo:
            return self.allreduce_sparse(tensors, options)
        elements = self._elements(tensors, options.reduceOp)
        if isinstance(elements, str):
            return self._forward("allreduce", elements, tensors, options)
        program = Program(self._rank, self._size)
        for tensor in tensors:
            program.allreduce(self._scaled_in_place(tensor, options.reduceOp), elements)
        return self._run("fanin:all_reduce", program, options, tensors)

    def allreduce_sparse(self, tensors: list[Tensor], options: Any) -> Work:
        """The same for sparse tensors: they get every element that any rank has, coalesced."""
        elements = reduced(tensors[0].dtype, options.reduceOp.op)
        if isinstance(elements, str) or elements.per_element != 1 or elements.op != "sum" or options.reduceOp.op != ReduceOp.SUM:
            return self._forward("allreduce", "of sparse tensors only sums of real numbers are native", tensors, options)
        self._sequence += 1
        handles, after, error = [], [], None
        try:
            for tensor in tensors:
                sparse = SparseTensor(tensor)
                handle, result = self._comm.allreduce_sparse_async(elements.dtype, elements.op, sparse.size, *sparse.addresses)
                handles.append(handle)
                after.append(sparse.takes(result))
        except ValueError:
            raise
        except FaninError as raised:
            self._failed = True
            error = of_collective("fanin:all_reduce_sparse", self._timeout_s, raised)
        # One that is not given is negative.
        limit_s = timeout.total_seconds() if (timeout := options.timeout).days >= 0 and timeout else self._limit_s
        name = "fanin:all_reduce_sparse"
        work = FaninWork(name, self._comm, self._timeout_s, tensors, handles=handles, error=error, after=after, limit_s=limit_s)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def allreduce_coalesced(self, tensors: list[Tensor], options: Any) -> Work:
        """Several reductions at once."""
        kinds = [self._elements([tensor], options.reduceOp) for tensor in tensors]
        for elements in kinds:
            if isinstance(elements, str):
                return self._forward("allreduce_coalesced", elements, tensors, options)
        program = Program(self._rank, self._size)
        for tensor, elements in zip(tensors, kinds, strict=True):
            assert not isinstance(elements, str)
            program.allreduce(self._scaled_in_place(tensor, options.reduceOp), elements)
        return self._run("fanin:all_reduce_coalesced", program, options, tensors)

    def reduce(self, tensors: list[Tensor], options: Any) -> Work:
        """Rank ``rootRank`` gets the reduction, in place."""
        elements = self._elements(tensors, options.reduceOp)
        if isinstance(elements, str):
            return self._forward("reduce", elements, tensors, options)
        program = Program(self._rank, self._size)
        for tensor in tensors:
            given = _scaled(tensor, options.reduceOp)
            program.reduce(given, elements, options.rootRank)
            if given is not tensor and self._rank == options.rootRank:
                program.after.append(write_back(tensor, given))
        return self._run("fanin:reduce", program, options, tensors)

    def broadcast(self, tensors: list[Tensor], options: Any) -> Work:
        """Every rank gets rank ``rootRank``'s tensor."""
        if tensors[0].layout != torch.strided:
            return self._forward("broadcast", "sparse tensors do not lie in one stretch of memory", tensors, options)
        program = Program(self._rank, self._size)
        for tensor in tensors:
            program.broadcast(tensor, options.rootRank)
        return self._run("fanin:broadcast", program, options, tensors)

    def barrier(self, options: Any) -> Work:
        """All ranks wait for each other."""
        program = Program(self._rank, self._size)
        program.barrier()
        return self._run("fanin:barrier", program, options, None)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any) -> Work:
        """Every rank gets all inputs, each in a tensor of its own."""
        if inputs[0].layout != torch.strided:
            return self._forward("allgather", "sparse tensors do not lie in one stretch of memory", outputs, inputs, options)
        program = Program(self._rank, self._size)
        for output, given in zip(outputs, inputs, strict=True):
            program.all_gather(output, given)
        return self._run("fanin:all_gather", program, options, outputs)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any) -> Work:
        """Several all-gathers at once; ``outputs`` has a list of tensors for each rank."""
        program = Program(self._rank, self._size)
        for index, given in enumerate(inputs):
            program.all_gather([tensors[index] for tensors in outputs], given)
        return self._run("fanin:all_gather_coalesced", program, options, outputs)

    def all_gather_single(self, output: Tensor, given: Tensor, options: Any) -> Work:
        """Every rank gets all inputs, one behind the other."""
        program = Program(self._rank, self._size)
        program.all_gather_single(output, given)
        return self._run("fanin:all_gather_into_tensor", program, options, output)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], options: Any) -> Work:
        """Several of these at once."""
        program = Program(self._rank, self._size)
        for output, given in zip(outputs, inputs, strict=True):
            program.all_gather_single(output, given)
        return self._run("fanin:all_gather_into_tensor_coalesced", program, options, outputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], options: Any) -> Work:
        """A rank gets its part of the reduction, where each part is a tensor of its own."""
        elements = self._elements(outputs, options.reduceOp)
        if isinstance(elements, str):
            return self._forward("reduce_scatter", elements, outputs, inputs, options)
        program = Program(self._rank, self._size)
        for output, given in zip(outputs, inputs, strict=True):
            program.reduce_scatter(output, [_scaled(part, options.reduceOp) for part in given], elements)
        return self._run("fanin:reduce_scatter", program, options, outputs)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, options: Any) -> Work:
        """A rank gets its part of the reduction."""
        elements = self._elements([output], options.reduceOp)
        if isinstance(elements, str):
            return self._forward("reduce_scatter_single", elements, output, given, options)
        program = Program(self._rank, self._size)
        program.reduce_scatter_single(output, _scaled(given, options.reduceOp), elements)
        return self._run("fanin:reduce_scatter_tensor", program, options, output)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], options: Any) -> Work:
        """Several of these at once."""
        kinds = [self._elements([output], options.reduceOp) for output in outputs]
        for elements in kinds:
            if isinstance(elements, str):
                return self._forward("reduce_scatter_single_coalesced", elements, outputs, inputs, options)
        program = Program(self._rank, self._size)
        for output, given, elements in zip(outputs, inputs, kinds, strict=True):
            assert not isinstance(elements, str)
            program.reduce_scatter_single(output, _scaled(given, options.reduceOp), elements)
        return self._run("fanin:reduce_scatter_tensor_coalesced", program, options, outputs)

    def _scaled_in_place(self, tensor: Tensor, op: ReduceOp) -> Tensor:
        return tensor.mul_(op.factor) if op.op == ReduceOp.PREMUL_SUM else tensor

    # The names that these have had before PyTorch 2.15.

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # Several calls at once.

    def start_coalescing(self) -> None:
        """Work from here on is waited for together."""
        self._coalesced = []

    def end_coalescing(self) -> Work:
        """The work since ``start_coalescing``."""
        works, self._coalesced = self._coalesced or [], None
        return GatheredWork(works)

    # What gloo does.

    def send(self, tensors: list[Tensor], destination: int, tag: int) -> Work:
        """To one rank."""
        return self._forward("send", _NOT_COLLECTIVE, tensors, destination, tag)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> Work:
        """From one rank."""
        return self._forward("recv", _NOT_COLLECTIVE, tensors, source, tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Work:
        """From whichever rank sends first."""
        return self._forward("recv_anysource", _NOT_COLLECTIVE, tensors, tag)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any) -> Work:
        """One rank gets all inputs."""
        return self._forward("gather", _NOT_REDUCED, outputs, inputs, options)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], options: Any) -> Work:
        """One rank gives each its part."""
        return self._forward("scatter", _NOT_REDUCED, outputs, inputs, options)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], options: Any) -> Work:
        """Every rank gives each its part."""
        return self._forward("alltoall", _NOT_REDUCED, outputs, inputs, options)

    def all_to_all_single(self, output: Tensor, given: Tensor, output_splits: list[int], input_splits: list[int], options: Any) -> Work:
        """Every rank gives each its part, in one tensor."""
        return self._forward("all_to_all_single", _NOT_REDUCED, output, given, output_splits, input_splits, options)

    alltoall_base = all_to_all_single

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """A barrier that says who is missing."""
        self._monitored.wait(options.timeout if options.timeout.days >= 0 else self._options._timeout, wait_all_ranks)


def _scaled(tensor: Tensor, op: ReduceOp) -> Tensor:
    """What is summed: with ``PREMUL_SUM`` the tensor times a factor, else the tensor itself."""
    return tensor * op.factor if op.op == ReduceOp.PREMUL_SUM else tensor


def _shut_down_all() -> None:
    """At the interpreter's end: other ranks must not take it for a death."""
    for backend in list(_open):
        backend.shutdown()


atexit.register(_shut_down_all)
