"""What PyTorch calls: the collectives of a process group.

PyTorch looks the methods up by name; one that is missing here raises where it is called. Every method returns work that has begun, or has
ended already where the caller is going to wait at once (``asyncOp`` is false): then the call runs in the caller's thread, which is faster.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, ErrorType
from torch.autograd import profiler
from torch.distributed import PrefixStore, ReduceOp, Store, Work

from fanin._native import Communicator, SparseResult
from fanin.errors import ArgumentError, ConfigurationError, FaninError
from fanin.operators import CustomOperator
from fanin.torch import determinism
from fanin.torch.elements import Elements, reduced
from fanin.torch.errors import of_collective, of_gloo, of_joining
from fanin.torch.forwarding import Forwarding, Lending
from fanin.torch.meeting import HOSTING, Meeting, Member, Place, own_address
from fanin.torch.memory import After, as_bytes, check_output, lent_input, lent_output
from fanin.torch.monitored import MonitoredBarrier
from fanin.torch.options import (
    TIMEOUT_MAX,
    common,
    fabric_of,
    of_communicator,
    read,
    reproducible_by,
    tell_void_variables,
    tls_of,
    with_determinism,
)
from fanin.torch.profiles import Group
from fanin.torch.program import Program
from fanin.torch.sparse import SparseTensor, sparse_reduction
from fanin.torch.work import FaninWork, ForwardedWork, GatheredWork

_log = logging.getLogger("fanin.torch")

_T = TypeVar("_T")

#: Why some operations are never the communicator's.
_NOT_COLLECTIVE = "switches have no part in messages between two ranks"
_NOT_REDUCED = "a switch has nothing to sum there"

#: Backends that have not been shut down. PyTorch itself does not always hold the Python object (TORCH_DISTRIBUTED_DEBUG=DETAIL), and
#: without that the methods below would vanish.
_open: set[FaninBackend] = set()


class Passed(NamedTuple):
    """What has passed through a group's communicator."""

    #: Calls of PyTorch.
    calls: int
    #: Bytes of this rank's vectors in them.
    bytes: int


def create(options: Any, pg_options: Any) -> FaninBackend:
    """Makes the backend of a new group; returns once all of the group's ranks have joined."""
    if options.enable_reconfigure:
        raise ConfigurationError("enable_reconfigure = True: expected False, since a group of Fanin cannot be reconfigured")
    ranks = options.global_ranks_in_group
    place = (options.store, options.group_rank, options.group_size, options.timeout)
    return FaninBackend(*place, ranks=ranks, pg_options=pg_options, name=str(options.group_id))


class FaninBackend(Backend):
    """The backend of one group."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta | float,
        *,
        ranks: Sequence[int] = (),
        pg_options: Any = None,
        settings: Mapping[str, Any] | None = None,
        name: str = "",
    ) -> None:
        """``ranks`` are the group's in the default group; ``settings`` are another group's, where it is made from that one; ``name`` is
        PyTorch's of the group."""
        super().__init__(rank, size)
        timeout = min(timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout), TIMEOUT_MAX)
        self._rank = rank
        self._size = size
        self._options = Backend.Options("fanin", timeout=timeout)
        self._timeout_s = timeout.total_seconds()
        self._place: Place | None = None
        self._failed = False
        self._sequence = 0
        self._coalesced: list[Work] | None = None
        #: What was asked for, by PyTorch's name.
        self.passed: dict[str, Passed] = {}
        #: How the last sparse vectors were summed, in a word and for people.
        self.sparse_report: tuple[str, str] | None = None
        self._by_gloo: set[str] = set()
        self._settings: dict[str, Any] = {}
        self._group = Group(name, tuple(ranks) or tuple(range(size)))
        store = PrefixStore("fanin", store)
        self._meeting = self._come_together(store, tuple(ranks) or tuple(range(size)), pg_options, settings or {})
        self._comm = self._join(self._place or Place(job="torch/alone"))
        _log.info("rank %d of %d: %s", rank, size, self._comm.path)
        local = self._place is None or self._place.local
        self._forwarding = Forwarding(
            store, rank, size, self._options._timeout, own_address(store, local) if local else os.environ.get("FANIN_BIND")
        )
        self._monitored = MonitoredBarrier(store, rank, size)
        _open.add(self)

    def _come_together(self, store: Store, ranks: tuple[int, ...], pg_options: Any, settings: Mapping[str, Any]) -> Meeting | None:
        """Meets the other ranks, who hear of it where this one has been told nonsense."""
        wrong: ConfigurationError | None = None
        try:
            self._settings = with_determinism({**settings, **read(pg_options)})
            self._take_timeout()
            self._check_settings()
        except ConfigurationError as error:
            wrong = error
        tell_void_variables()
        if self._size == 1:
            if wrong is not None:
                raise wrong
            return None
        failure = None if wrong is None else str(wrong)
        member = Member(self._rank, ranks, common(self._settings), failure, tls_of(self._settings))
        meeting = Meeting(store, member, self._options._timeout)
        if wrong is not None:
            meeting.decline()
            raise wrong
        self._place = meeting.come_together()
        return meeting

    def _take_timeout(self) -> None:
        """The options' timeout comes before the group's; of options that come from another group it does not."""
        timeout = self._settings.pop("timeout", None)
        if timeout is not None:
            self._options._timeout = timeout
            self._timeout_s = timeout.total_seconds()

    def _check_settings(self) -> None:
        """Whether the communicator takes the settings and the environment, as a rank that is alone and meets nobody."""
        fabric = fabric_of(self._settings)
        switch = self._settings.get("switch") or os.environ.get("FANIN_SWITCH") or "127.0.0.1:1"
        place = Place(job="torch/check", fabric=fabric) if fabric else Place(job="torch/check", switch=switch)
        self._communicator(place, 0, 1).close()

    def _communicator(self, place: Place, rank: int, size: int) -> Communicator:
        return Communicator.from_env(
            rank=rank,
            world=size,
            job=place.job,
            switch=place.switch,
            fabric=place.fabric,
            rendezvous=place.rendezvous,
            timeout=self._timeout_s,
            notices=_log.warning,
            **of_communicator(self._settings),
        )

    def _join(self, place: Place) -> Communicator:
        try:
            return self._communicator(place, self._rank, self._size)
        except FaninError as error:
            self._leave_host()
            raise of_joining(self._timeout_s, self._rank, error) from error

    # What the group is.

    @property
    def communicator(self) -> Communicator:
        """What its vectors travel by."""
        return self._comm

    @property
    def reproducible(self) -> Literal["element", "block", "tree"] | None:
        """Whether floats are summed to the same bits in every run, and what these depend on."""
        return reproducible_by(self._settings)

    @property
    def by_gloo(self) -> tuple[str, ...]:
        """What gloo has done."""
        return tuple(sorted(self._by_gloo))

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
        rank = list(ranks).index(self._rank)
        return FaninBackend(
            PrefixStore("split", store), rank, len(ranks), options._timeout, ranks=ranks, pg_options=options, settings=self._settings
        )

    def merge(self, store: Store, options: Backend.Options, rank: int, size: int) -> FaninBackend:
        """A group of this one's ranks and others."""
        return FaninBackend(PrefixStore("merge", store), rank, size, options._timeout, pg_options=options, settings=self._settings)

    def perform_nocolor_split(self, _device: torch.device) -> None:
        """Ranks that are not in a new group have nothing to do."""

    def eager_connect_single_device(self, _device: torch.device | None) -> None:
        """Ranks are connected from the beginning."""

    def set_timeout(self, timeout: timedelta) -> None:
        """From now on collectives of this rank wait so long, whether that is longer or shorter than before."""
        timeout = min(timeout, TIMEOUT_MAX)
        self._comm.set_timeout(timeout.total_seconds())
        self._timeout_s = timeout.total_seconds()
        self._options._timeout = timeout
        self._forwarding.set_timeout(timeout)

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
        if self._meeting is not None:
            self._meeting.end()
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

    def _limit(self, options: Any) -> float | None:
        """How long a call waits, where that is not as long as others do. A timeout that is not given is negative."""
        given: timedelta = options.timeout
        return min(given, TIMEOUT_MAX).total_seconds() if given.days >= 0 and given else None

    def _run(self, name: str, program: Program, options: Any, result: Any) -> Work:
        """Makes the calls of a program."""
        self._sequence += 1
        # Step: input's bytes are the sixth.
        self._note(name, sum(step[5] for step in program.steps))
        limit_s = self._limit(options)
        self._group.note(name, program, self._sequence)
        if not options.asyncOp and self._coalesced is None:
            if profiler._is_profiler_enabled:
                with profiler.record_function(name):
                    return self._run_here(name, program, result, limit_s)
            return self._run_here(name, program, result, limit_s)
        return self._run_behind(name, program, result, limit_s)

    def _note(self, name: str, size: int) -> None:
        name = name.removeprefix("fanin:")
        calls, passed = self.passed.get(name, (0, 0))
        self.passed[name] = Passed(calls + 1, passed + size)

    def _run_here(self, name: str, program: Program, result: Any, limit_s: float | None) -> Work:
        error = None
        try:
            for step in program.steps:
                self._comm.call(*step, timeout=limit_s)
        except ValueError:
            raise
        except FaninError as raised:
            error = self._failure(name, limit_s, raised)
        return FaninWork(name, self._comm, limit_s or self._timeout_s, result, error=error, after=program.after)

    def _failure(self, name: str, limit_s: float | None, error: FaninError) -> BaseException:
        self._failed = True
        return of_collective(name, limit_s or self._timeout_s, error)

    def _run_behind(self, name: str, program: Program, result: Any, limit_s: float | None) -> Work:
        span = profiler.record_function(name) if profiler._is_profiler_enabled else None
        if span is not None:
            span.__enter__()
        handles, error = [], None
        try:
            for step in program.steps:
                handles.append(self._comm.call_async(*step, keep=program.keep, timeout=limit_s))
        except ValueError:
            raise
        except FaninError as raised:
            error = self._failure(name, limit_s, raised)
        work = FaninWork(name, self._comm, limit_s or self._timeout_s, result, handles=handles, error=error, after=program.after)
        if span is not None:
            span._call_end_callbacks_on_future(work.get_future())
        return self._collected(work)

    def _collected(self, work: Work) -> Work:
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _gloo(self, what: str, why: str, does: str | None = None, peer: int | None = None) -> Any:
        """What gloo has for an operation: ``does``, or what has the same name. ``peer`` is the only rank that it is waited for."""
        self._sequence += 1
        self._by_gloo.add(what)

        def operation(*arguments: Any) -> Work:
            try:
                started: Work = getattr(self._forwarding.group(what, why), does or what)(*arguments)
            except RuntimeError as error:
                # The others have to come as well: for gloo's group to be made, and for the first message between two.
                raise of_gloo(what, self._rank, peer, error) from error
            return started

        return operation

    def _forwarded(self, what: str, work: Work, result: Any, lending: Lending, peer: int | None = None) -> Work:
        return self._collected(ForwardedWork(what, self._rank, peer, work, result, lending.after))

    def _patient(self, options: Any) -> Any:
        """Options with the timeout of this call."""
        limit_s = self._limit(options)
        options.timeout = timedelta(seconds=self._timeout_s if limit_s is None else limit_s)
        return options

    def _elements(self, tensors: Sequence[Tensor], op: ReduceOp) -> Elements:
        """How the communicator sees a reduction.

        Raises:
            ArgumentError: There is no such one.
        """
        first = tensors[0]
        _check_dense(tensors)
        if len(tensors) > 1 and any(tensor.dtype != first.dtype for tensor in tensors):
            raise ArgumentError(f"tensors of several types: {sorted({str(tensor.dtype) for tensor in tensors})}")
        elements = reduced(first.dtype, op.op, propagates=self._settings.get("nan") == "propagate")
        self._check_order(first.dtype, op)
        return elements

    def _check_order(self, dtype: torch.dtype, op: ReduceOp) -> None:
        determinism.check(dtype, op.op, transport=self._comm.transport, world=self._size, reproducible=self.reproducible is not None)

    def allreduce(self, tensors: list[Tensor], options: Any) -> Work:
        """Every rank gets the reduction, in place."""
        tensor = _only(tensors, "all_reduce")
        if tensor.layout == torch.sparse_coo:
            return self.allreduce_sparse(tensors, options)
        program = Program(self._rank, self._size)
        program.allreduce(tensor, self._elements(tensors, options.reduceOp), _scaled(tensor, options.reduceOp))
        return self._run("fanin:all_reduce", program, options, tensors)

    def allreduce_sparse(self, tensors: list[Tensor], options: Any) -> Work:
        """The same for a sparse tensor: it gets every element that any rank has, coalesced."""
        tensor = _only(tensors, "all_reduce")
        op = options.reduceOp.op
        reduction = sparse_reduction(tensor.dtype, op, propagates=self._settings.get("nan") == "propagate")
        # Lists are merged in the order of ranks.
        if self._settings.get("sparse") != "lists":
            self._check_order(tensor.dtype, options.reduceOp)
        elements = reduction.elements
        self._sequence += 1
        name, limit_s = "fanin:all_reduce_sparse", self._limit(options)
        handles, after, error = [], [], None
        sparse = SparseTensor(tensor, reduction, self._size)
        self._note(name, sparse.indices.nbytes + sparse.values.nbytes)
        try:
            handle, result = self._comm.allreduce_sparse_async(elements.dtype, elements.op, sparse.size, *sparse.addresses, timeout=limit_s)
            handles.append(handle)
            after += [sparse.takes(result), lambda: self._remember(result)]
        except ValueError:
            raise
        except FaninError as raised:
            error = self._failure(name, limit_s, raised)
        return self._collected(FaninWork(name, self._comm, limit_s or self._timeout_s, tensors, handles=handles, error=error, after=after))

    def _remember(self, result: SparseResult) -> None:
        self.sparse_report = (result.way, result.path)

    def check_operator(self, op: CustomOperator, what: str) -> None:
        """Whether the group has brought an operator along.

        Raises:
            ArgumentError: It has not.
        """
        if not isinstance(op, CustomOperator):
            raise ArgumentError(f"{what}: op = {op!r}: expected a fanin.CustomOperator (torch.distributed.all_reduce has the others)")
        if op.digest not in [each.digest for each in self._settings.get("operators", ())]:
            raise ArgumentError(
                f"{what}: the group has no operator {op.name!r}: expected it among the group's, as in"
                " pg_options=fanin.torch.Options(operators=(operator,))"
            )

    def allreduce_custom(self, tensor: Tensor, op: CustomOperator) -> Work:
        """Every rank gets the reduction by an operator that the group has brought along, in place, in the background.

        Raises:
            ArgumentError: The tensor's bytes are no elements of the operator, or the group has not got it.
        """
        self.check_operator(op, "all_reduce")
        _check_dense([tensor])
        size = op.native.element_bytes
        if tensor.nbytes % size != 0:
            raise ArgumentError(
                f"all_reduce: a tensor of {tensor.nbytes} bytes: expected a multiple of the {size} of {op.name!r}'s elements"
            )
        program = Program(self._rank, self._size)
        program.allreduce_custom(tensor, op)
        self._sequence += 1
        self._note("all_reduce_custom", tensor.nbytes)
        self._group.note("fanin:all_reduce_custom", program, self._sequence)
        return self._run_behind("fanin:all_reduce_custom", program, [tensor], None)

    def allreduce_coalesced(self, tensors: list[Tensor], options: Any) -> Work:
        """Several reductions at once."""
        kinds = [self._elements([tensor], options.reduceOp) for tensor in tensors]
        program = Program(self._rank, self._size)
        for tensor, elements in zip(tensors, kinds, strict=True):
            program.allreduce(tensor, elements, _scaled(tensor, options.reduceOp))
        return self._run("fanin:all_reduce_coalesced", program, options, tensors)

    def reduce(self, tensors: list[Tensor], options: Any) -> Work:
        """Rank ``rootRank`` gets the reduction, in place."""
        tensor = _only(tensors, "reduce", options.rootTensor)
        program = Program(self._rank, self._size)
        program.reduce(tensor, self._elements(tensors, options.reduceOp), options.rootRank, _scaled(tensor, options.reduceOp))
        return self._run("fanin:reduce", program, options, tensors)

    def broadcast(self, tensors: list[Tensor], options: Any) -> Work:
        """Every rank gets rank ``rootRank``'s tensor."""
        tensor = _only(tensors, "broadcast", options.rootTensor)
        _check_dense(tensors)
        program = Program(self._rank, self._size)
        program.broadcast(tensor, options.rootRank)
        return self._run("fanin:broadcast", program, options, tensors)

    def barrier(self, options: Any) -> Work:
        """All ranks wait for each other."""
        program = Program(self._rank, self._size)
        program.barrier()
        return self._run("fanin:barrier", program, options, None)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any) -> Work:
        """Every rank gets all inputs, each in a tensor of its own."""
        _check_dense(inputs)
        program = Program(self._rank, self._size)
        program.all_gather(_only(outputs, "all_gather"), _only(inputs, "all_gather"))
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
        output, given = _only(outputs, "reduce_scatter"), _only(inputs, "reduce_scatter")
        elements = self._elements([output, *given], options.reduceOp)
        program = Program(self._rank, self._size)
        program.reduce_scatter(output, [_scaled_or_itself(part, options.reduceOp) for part in given], elements)
        return self._run("fanin:reduce_scatter", program, options, outputs)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, options: Any) -> Work:
        """A rank gets its part of the reduction."""
        elements = self._elements([output, given], options.reduceOp)
        program = Program(self._rank, self._size)
        program.reduce_scatter_single(output, _scaled_or_itself(given, options.reduceOp), elements)
        return self._run("fanin:reduce_scatter_tensor", program, options, output)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], options: Any) -> Work:
        """Several of these at once."""
        kinds = [self._elements([output], options.reduceOp) for output in outputs]
        program = Program(self._rank, self._size)
        for output, given, elements in zip(outputs, inputs, kinds, strict=True):
            program.reduce_scatter_single(output, _scaled_or_itself(given, options.reduceOp), elements)
        return self._run("fanin:reduce_scatter_tensor_coalesced", program, options, outputs)

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
        lending = Lending()
        work = self._gloo("send", _NOT_COLLECTIVE, peer=destination)(lending.inputs([_only(tensors, "send")]), destination, tag)
        return self._forwarded("send", work, tensors, lending, destination)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> Work:
        """From one rank."""
        lending = Lending()
        work = self._gloo("recv", _NOT_COLLECTIVE, peer=source)(lending.outputs([_only(tensors, "recv")]), source, tag)
        return self._forwarded("recv", work, tensors, lending, source)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Work:
        """From whichever rank sends first."""
        lending = Lending()
        work = self._gloo("recv_anysource", _NOT_COLLECTIVE)(lending.outputs([_only(tensors, "recv")]), tag)
        return self._forwarded("recv_anysource", work, tensors, lending)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any) -> Work:
        """One rank gets all inputs."""
        given, lending = _only(inputs, "gather"), Lending()
        _check_alike("gather", [tensor for each in outputs for tensor in each], given)
        rooms = [lending.outputs(each) for each in outputs]
        work = self._gloo("gather", _NOT_REDUCED)(rooms, lending.inputs([given]), self._patient(options))
        return self._forwarded("gather", work, outputs, lending, self._unless_self(options.rootRank))

    def gather_single(self, output: Tensor, given: Tensor, options: Any) -> Work:
        """The same, with one tensor for the result."""
        given = given.reshape(-1)
        if self._rank != options.rootRank:
            return self.gather([], [given], options)
        if output.numel() != given.numel() * self._size or output.dtype != given.dtype:
            raise ArgumentError(
                f"gather: the output has {output.numel()} elements of {output.dtype}, expected {given.numel() * self._size} of"
                f" {given.dtype}"
            )
        after: list[After] = []
        room = lent_output(output, after)
        parts = [room.view(-1).narrow(0, rank * given.numel(), given.numel()) for rank in range(self._size)]
        work = self.gather([parts], [given], options)
        assert isinstance(work, ForwardedWork)
        work.then(after, output)
        return work

    gather_into_tensor = gather_single

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], options: Any) -> Work:
        """One rank gives each its part."""
        output, lending = _only(outputs, "scatter"), Lending()
        _check_alike("scatter", [tensor for each in inputs for tensor in each], output)
        rooms = lending.outputs([output])
        work = self._gloo("scatter", _NOT_REDUCED)(rooms, [lending.inputs(each) for each in inputs], self._patient(options))
        return self._forwarded("scatter", work, outputs, lending, self._unless_self(options.rootRank))

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], options: Any) -> Work:
        """Every rank gives each its part: as one tensor, since gloo takes no list."""
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ArgumentError(f"all_to_all: {len(outputs)} outputs and {len(inputs)} inputs, expected one for each of {self._size} ranks")
        _check_dense([*outputs, *inputs])
        lending = Lending()
        for output in outputs:
            check_output(output)
        given = torch.cat([as_bytes(lent_input(tensor)).reshape(-1) for tensor in inputs])
        lengths = [tensor.numel() * tensor.itemsize for tensor in outputs]
        room = torch.empty(sum(lengths), dtype=torch.uint8)
        lending.after += [_from_bytes(output, part) for output, part in zip(outputs, room.split(lengths), strict=True)]
        splits = [tensor.numel() * tensor.itemsize for tensor in inputs]
        work = self._gloo("alltoall", _NOT_REDUCED, "all_to_all_single")(room, given, lengths, splits, self._patient(options))
        return self._forwarded("all_to_all", work, outputs, lending)

    def all_to_all_single(self, output: Tensor, given: Tensor, output_splits: list[int], input_splits: list[int], options: Any) -> Work:
        """Every rank gives each its part, in one tensor."""
        if output.dtype != given.dtype:
            raise ArgumentError(f"all_to_all: the output is of {output.dtype} and the input of {given.dtype}: expected one type")
        _check_dense([output, given])
        lending = Lending()
        (room,) = lending.outputs([output])
        (sent,) = lending.inputs([given])
        work = self._gloo("all_to_all_single", _NOT_REDUCED)(room, sent, output_splits, input_splits, self._patient(options))
        return self._forwarded("all_to_all_single", work, output, lending)

    alltoall_base = all_to_all_single

    def _unless_self(self, rank: int) -> int | None:
        return None if rank == self._rank else rank

    def monitored_barrier(self, options: Any, wait_all_ranks: bool = False) -> None:
        """A barrier that says who is missing."""
        self._monitored.wait(options.timeout if options.timeout.days >= 0 else self._options._timeout, wait_all_ranks)


def _only(tensors: Sequence[_T], what: str, root_tensor: int = 0) -> _T:
    """The tensor of a call; several would be those of several GPUs of one process, which there are none of here."""
    if len(tensors) != 1:
        raise ArgumentError(f"{what}: {len(tensors)} tensors of one rank, expected one")
    if root_tensor != 0:
        raise ArgumentError(f"{what}: rootTensor = {root_tensor}: expected 0, since a rank has one tensor")
    return tensors[0]


def _check_dense(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise ArgumentError(f"a tensor with layout {tensor.layout}: expected a dense one (sparse COO tensors have all_reduce alone)")


def _check_alike(what: str, tensors: Sequence[Tensor], model: Tensor) -> None:
    _check_dense([*tensors, model])
    for tensor in tensors:
        if tensor.dtype != model.dtype or tensor.numel() != model.numel():
            raise ArgumentError(
                f"{what}: a tensor of {tensor.numel()} elements of {tensor.dtype} in the list, expected {model.numel()} of {model.dtype}"
            )


def _from_bytes(output: Tensor, part: Tensor) -> After:
    """Writes elements that have come as bytes to their tensor."""
    # A copy, since parts may begin anywhere.
    return lambda: output.copy_(part.clone().view(output.dtype).view(output.shape), non_blocking=True)


def _scaled(tensor: Tensor, op: ReduceOp) -> Tensor | None:
    """With ``PREMUL_SUM`` the tensor times a factor; ``None`` where the tensor itself is reduced.

    Raises:
        ArgumentError: The factor is no number for elements of that type.
    """
    if op.op != ReduceOp.PREMUL_SUM:
        return None
    factor = op.factor
    if isinstance(factor, Tensor):
        # PyTorch has seen to it that it is one number; of another type it would change that of the product.
        factor = factor.item()
    scaled = tensor * factor
    if scaled.dtype != tensor.dtype:
        raise ArgumentError(
            f"PREMUL_SUM: {tensor.dtype} times {factor!r} is {scaled.dtype}: expected a factor that leaves the type as it is"
        )
    return scaled


def _scaled_or_itself(tensor: Tensor, op: ReduceOp) -> Tensor:
    scaled = _scaled(tensor, op)
    return tensor if scaled is None else scaled


def _shut_down_all() -> None:
    """At the interpreter's end: other ranks must not take it for a death."""
    for backend in list(_open):
        backend.shutdown()


atexit.register(_shut_down_all)
