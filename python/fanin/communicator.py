"""Collectives between the processes of a job, on numpy arrays, PyTorch tensors and whatever else has memory."""

from __future__ import annotations

import asyncio
import atexit
import weakref
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from fanin import _native
from fanin._arrays import View, element_type, sparse_arrays, view_indices, view_input, view_output
from fanin.errors import ArgumentError, FaninError
from fanin.operators import CustomOperator

__all__ = ["Communicator", "Handle", "Operator", "init"]

#: Operators that are built in; means of floats and complex numbers only, bitwise ones of integers and booleans only.
Operator: TypeAlias = Literal["sum", "prod", "min", "max", "avg", "and", "or", "xor", "minimum", "maximum"]

#: What calls reduce by: an operator that is built in, or one that the job has brought along.
AnyOperator: TypeAlias = Operator | CustomOperator

_T = TypeVar("_T")
_Scalar = TypeVar("_Scalar", bound=np.generic)

#: Those that were not closed yet, for the end of the program.
_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


def init(
    *,
    rank: int | None = None,
    world: int | None = None,
    job: str | None = None,
    switch: str | None = None,
    fabric: str | None = None,
    fabric_host: str | None = None,
    system: str | None = None,
    fallback: Literal["ring", "error"] | None = None,
    rendezvous: str | None = None,
    timeout: float | str | None = None,
    stall_notice: float | str | None = None,
    transport: Literal["auto", "udp", "shm"] | None = None,
    wait: Literal["adaptive", "busy"] | None = None,
    bind: str | None = None,
    payload: int | None = None,
    window: int | None = None,
    fixed_point: bool | None = None,
    reproducible: bool | Literal["element", "block"] | None = None,
    sparse: Literal["auto", "switch", "lists"] | None = None,
    token: str | None = None,
    tls: str | None = None,
    tls_name: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    notices: Callable[[str], object] | None = None,
    operators: Sequence[CustomOperator] = (),
) -> Communicator:
    """Joins a job; returns once all of its ranks have.

    What is not given comes from the environment: from ``FANIN_*``, and where these are missing from the variables of torchrun and Open
    MPI's mpirun. Without any of them there is one rank, alone.

    Args:
        rank: This process's rank (``FANIN_RANK``).
        world: Number of ranks (``FANIN_WORLD``).
        job: The job's name, the same at all ranks (``FANIN_JOB``).
        switch: ``HOST:PORT`` of a switch, ``fanin switch`` (``FANIN_SWITCH``).
        fabric: ``HOST:PORT`` of the manager of a fabric of several switches, ``fanin manager`` (``FANIN_FABRIC``).
        fabric_host: The host of the fabric that this process is (``FANIN_FABRIC_HOST``); by default the one at its address.
        system: The system that sums, as ``"canary"`` or ``"tree"``, in a fabric or at one switch (``FANIN_SYSTEM``; ``"auto"``).
        fallback: What becomes of a job whose switch, or fabric, does not take it or is gone (``FANIN_FALLBACK``): a ``"ring"`` of
            hosts, or an ``"error"``.
        rendezvous: Without a switch, ``HOST:PORT`` at which rank 0 listens (``FANIN_RENDEZVOUS``).
        timeout: How long to wait for other ranks or the switch, in seconds, or as ``"90s"`` (``FANIN_TIMEOUT``; 60).
        stall_notice: After how long without progress to say why, likewise (``FANIN_STALL_NOTICE``; 5).
        transport: How vectors travel (``FANIN_TRANSPORT``); ``"auto"`` takes shared memory where all ranks are on one host.
        wait: ``"busy"`` never sleeps, for ranks with a core each (``FANIN_WAIT``).
        bind: The local IP address to send from (``FANIN_BIND``).
        payload: Bytes of elements in a packet (``FANIN_PAYLOAD``).
        window: Packets in flight (``FANIN_WINDOW``).
        fixed_point: Sum float32 as block fixed point, as hardware switches do (``FANIN_FIXED_POINT``).
        reproducible: Reduce floats to the same bits whatever the order of ranks, the path and the switches
            (``FANIN_REPRODUCIBLE``); the same at all ranks. ``"element"``, or ``True``: the bits depend on the element at all ranks and on
            nothing else. ``"block"`` sends fewer bytes: the bits depend on where in an array a value stands, and sums are exact relative
            to the largest of 256 neighbours, beside which what is much smaller vanishes.
        sparse: How sparse vectors are reduced by UDP (``FANIN_SPARSE``); ``"auto"`` takes the switch where that saves bytes.
        token: What gives the right to join, where the switch asks for it (``FANIN_TOKEN``): a token that ``fanin token issue`` has made, or
            ``"@FILE"``.
        tls: By what the switch is known, and then control connections are TLS (``FANIN_TLS``): the file of its CA, or
            ``"sha256:FINGERPRINT"`` of its certificate.
        tls_name: The name that its certificate must have (``FANIN_TLS_NAME``); by default the host that is gone to.
        tls_cert: The file of this rank's certificate (``FANIN_TLS_CERT``), where the switch asks for one or rank 0 runs it.
        tls_key: The file of its private key (``FANIN_TLS_KEY``).
        notices: Called with what the user should know while ranks wait; by default that is printed to standard error. It may be called in
            another thread.
        operators: Operators that the job brings along, at most four: the same modules at all ranks, in the same order.

    Raises:
        ConfigurationError: Arguments or variables make no sense.
        JobFailedError: Ranks or the switch did not come (``JobTimeoutError``), or this rank was not admitted.
    """
    return Communicator(
        _native.Communicator.from_env(
            rank=rank,
            world=world,
            job=job,
            switch=switch,
            fabric=fabric,
            fabric_host=fabric_host,
            system=system,
            fallback=fallback,
            rendezvous=rendezvous,
            timeout=timeout,
            stall_notice=stall_notice,
            transport=transport,
            wait=wait,
            bind=bind,
            payload=payload,
            window=window,
            fixed_point=fixed_point,
            reproducible=reproducible,
            sparse=sparse,
            token=token,
            tls=tls,
            tls_name=tls_name,
            tls_cert=tls_cert,
            tls_key=tls_key,
            notices=notices,
            operators=[operator.native for operator in operators],
        )
    )


class Handle(Generic[_T]):
    """A call in the background. In a coroutine, ``await`` it.

    The arrays of the call may be neither read nor written until it has ended.
    """

    def __init__(self, native: _native.Handle, result: _T) -> None:
        self._native = native
        self._result = result

    def done(self) -> bool:
        """Whether the call has ended, well or not."""
        return self._native.done()

    def wait(self, timeout: float | None = None) -> _T:
        """The result, once it is there.

        Raises:
            TimeoutError: It was not there after ``timeout`` seconds; the call goes on.
            JobFailedError: The job has failed.
        """
        if not self._native.wait(timeout):
            raise TimeoutError(f"the call has not ended within {timeout} s; it goes on")
        return self._result

    def exception(self) -> Exception | None:
        """What has gone wrong; ``None`` where nothing has, or not yet."""
        return self._native.error()

    def add_done_callback(self, callback: Callable[[Handle[_T]], object]) -> None:
        """Calls ``callback`` with this handle once the call has ended: in another thread, or at once where it has ended already."""
        self._native.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, _T]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def tell(_: _native.Handle) -> None:
            # Nobody waits any more where the loop is closed.
            if not loop.is_closed():
                loop.call_soon_threadsafe(end)

        self._native.add_done_callback(tell)
        yield from ended
        return self.wait()


class Communicator:
    """A process's place in a job, made by :func:`init`.

    Every rank makes the same calls in the same order, with arrays of the same type and number of elements; anything else is an error at
    every rank. All ranks get the same bits. Calls of several threads run one after another.

    Arrays are numpy arrays, PyTorch tensors in the memory of this process, and whatever has a buffer or speaks DLPack. A result is a tensor
    where the input is one, and a numpy array otherwise. Elements are read and written where they lie if that is contiguously; an input that
    does not is copied. With ``out`` the result is written there; ``out`` may be the input itself.

    As a context manager it leaves the job at the end, and where an exception leaves the block, ends it for all ranks.
    """

    def __init__(self, native: _native.Communicator) -> None:
        self._native = native
        self._sparse_path = ""
        _open.add(self)

    @property
    def native(self) -> _native.Communicator:
        """The native communicator, for calls by memory address."""
        return self._native

    @property
    def rank(self) -> int:
        """This rank."""
        return self._native.rank

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self._native.world

    @property
    def job(self) -> str:
        """The job's name."""
        return self._native.job

    @property
    def path(self) -> str:
        """How vectors travel and why so, for people."""
        return self._native.path

    @property
    def transport(self) -> Literal["shm", "udp", "fabric", "shm+fabric", "alone"]:
        """How vectors travel: to one switch by ``"udp"``, over a ``"fabric"`` of several, ``"alone"`` where there is one rank.

        ``"shm+fabric"``: ranks share hosts of a fabric, and sum in shared memory first.
        """
        return self._native.transport

    @property
    def packets(self) -> tuple[int, int]:
        """Packets that this rank has sent so far, and those among them that were sent again; none in shared memory."""
        return self._native.packets

    @property
    def timeout(self) -> float:
        """How long calls that are made from now on wait for other ranks or the switch, in seconds."""
        return self._native.timeout

    def set_timeout(self, timeout: float) -> None:
        """Sets that, for this rank; ranks may differ. The first one that does not want to wait any longer ends the job.

        Raises:
            ConfigurationError: It is no time that one can wait.
        """
        self._native.set_timeout(timeout)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or belongs to the process that this one was forked from."""
        return self._native.closed

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.transport
        return f"<fanin.Communicator job={self.job!r} rank={self.rank} world={self.world} {state}>"

    # Allreduce

    @overload
    def allreduce(self, array: _T, op: AnyOperator = "sum", *, out: _T) -> _T: ...
    @overload
    def allreduce(self, array: npt.NDArray[_Scalar], op: AnyOperator = "sum", *, out: None = None) -> npt.NDArray[_Scalar]: ...
    @overload
    def allreduce(self, array: Any, op: AnyOperator = "sum", *, out: None = None) -> Any: ...
    def allreduce(self, array: Any, op: AnyOperator = "sum", *, out: Any = None) -> Any:
        """The reduction of all ranks' arrays, element by element.

        Raises:
            ArgumentError: Type and operator do not go together, or ``out`` does not fit.
            JobFailedError: The job has failed.
        """
        return self._run(self._allreduce, array, op, out)

    def allreduce_async(self, array: Any, op: AnyOperator = "sum", *, out: Any = None) -> Handle[Any]:
        """As :meth:`allreduce`, in the background."""
        return self._start(self._allreduce, array, op, out)

    def _allreduce(self, array: Any, op: AnyOperator, out: Any) -> _Call:
        return self._same_shape("allreduce", array, op, out)

    # Sparse allreduce

    def allreduce_sparse(self, indices: Any, values: Any, size: int, op: Literal["sum", "min", "max"] = "sum") -> tuple[Any, Any]:
        """The reduction of vectors of ``size`` elements of which each rank gives some: ``values`` at ``indices``, in any order.

        Returns every index that any rank has given, once and in ascending order, and the reduction of what was given for it: the same at
        all ranks. What a rank does not give has no part in the reduction: the maximum of a negative number and of nothing is the number.
        What is given counts also where it is zero, and sums that are zero are in the result. Of an index that a rank gives several times,
        the values are combined first, in their order.

        Both results are tensors where ``values`` is one, and numpy arrays otherwise; indices are of type int64. How the result was
        computed is in :attr:`sparse_path`.

        Raises:
            ArgumentError: An index is not below ``size``, there are not as many values as indices, or there is no such reduction.
            JobFailedError: The job has failed; also where ranks differ in size, type or operator.
        """
        return self.allreduce_sparse_async(indices, values, size, op).wait()

    def allreduce_sparse_async(
        self, indices: Any, values: Any, size: int, op: Literal["sum", "min", "max"] = "sum"
    ) -> Handle[tuple[Any, Any]]:
        """As :meth:`allreduce_sparse`, in the background. The arrays may be written again as soon as this returns."""
        given, places, dtype = self._prepared(_sparse, (indices, values, size, op))
        handle, result = self._native.allreduce_sparse_async(dtype, op, size, places.ctypes.data, places.nbytes, given.address, given.bytes)
        return _SparseHandle(self, handle, result, given)

    @property
    def sparse_path(self) -> str:
        """How the last sparse allreduce that was waited for was computed and why so, for people; empty before the first one."""
        return self._sparse_path

    # Reduce

    def reduce(self, array: Any, op: AnyOperator = "sum", root: int = 0, *, out: Any = None) -> Any:
        """As :meth:`allreduce`, with the result at rank ``root`` only; the others get ``None``."""
        return self._run(self._reduce, array, op, root, out)

    def reduce_async(self, array: Any, op: AnyOperator = "sum", root: int = 0, *, out: Any = None) -> Handle[Any]:
        """As :meth:`reduce`, in the background."""
        return self._start(self._reduce, array, op, root, out)

    def _reduce(self, array: Any, op: AnyOperator, root: int, out: Any) -> _Call:
        self._check_root(root)
        if self.rank == root:
            return self._same_shape("reduce", array, op, out, root)
        given = view_input(array)
        return _reduction("reduce", op, given, given, None, None, root)

    # Broadcast and barrier

    def broadcast(self, array: _T, root: int = 0) -> _T:
        """Gives every rank the elements of rank ``root``'s array, in place, and returns the array.

        Elements of any type of fixed size may be broadcast.
        """
        self._run(self._broadcast, array, root)
        return array

    def broadcast_async(self, array: _T, root: int = 0) -> Handle[_T]:
        """As :meth:`broadcast`, in the background."""
        return self._start(self._broadcast, array, root)

    def _broadcast(self, array: Any, root: int) -> _Call:
        self._check_root(root)
        is_root = self.rank == root
        view = view_input(array) if is_root else view_output(array, "the array")
        dtype, each = element_type(view, None)
        # The root's own elements come back to it as well.
        result = view if view.writable else view_output(view.empty(view.shape))
        return _Call("broadcast", dtype, each, "max", view.elements, view, result, array, root)

    def barrier(self) -> None:
        """Returns once all ranks have called it."""
        self._run(_barrier)

    def barrier_async(self) -> Handle[None]:
        """As :meth:`barrier`, in the background."""
        return self._start(_barrier)

    # Where each rank has a part

    def reduce_scatter(self, array: Any, op: AnyOperator = "sum", *, out: Any = None) -> Any:
        """Reduces the arrays of all ranks and gives each rank its part.

        Parts are equal and along the first dimension, in the order of ranks. ``out`` may be this rank's part of the input itself.
        """
        return self._run(self._reduce_scatter, array, op, out)

    def reduce_scatter_async(self, array: Any, op: AnyOperator = "sum", *, out: Any = None) -> Handle[Any]:
        """As :meth:`reduce_scatter`, in the background."""
        return self._start(self._reduce_scatter, array, op, out)

    def _reduce_scatter(self, array: Any, op: AnyOperator, out: Any) -> _Call:
        given = view_input(array)
        if not given.shape or given.shape[0] % self.world != 0:
            raise ArgumentError(
                f"reduce_scatter: the array's shape is {given.shape}: expected a first dimension that {self.world} ranks can share equally"
            )
        part = (given.shape[0] // self.world, *given.shape[1:])
        result = self._result(given, part, out)
        return _reduction("reduce_scatter", op, result, given, result, result.array, 0)

    def all_gather(self, array: Any, *, out: Any = None) -> Any:
        """The arrays of all ranks, one behind the other along the first dimension, in the order of ranks.

        ``array`` may be this rank's part of ``out`` itself. Elements of any type of fixed size may be gathered.
        """
        return self._run(self._all_gather, array, out)

    def all_gather_async(self, array: Any, *, out: Any = None) -> Handle[Any]:
        """As :meth:`all_gather`, in the background."""
        return self._start(self._all_gather, array, out)

    def _all_gather(self, array: Any, out: Any) -> _Call:
        given = view_input(array)
        first, *rest = given.shape or (1,)
        result = self._result(given, (self.world * first, *rest), out)
        return _Call("all_gather", *element_type(given, None), "max", given.elements, given, result, result.array, 0)

    # Groups and the end

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Divides the ranks into communicators, one for each ``color``; a rank whose ``color`` is ``None`` gets none.

        Within one, ranks are in the order of ``key``, and of their present ranks where keys are equal. All ranks call it.
        """
        if color is not None and not 0 <= color < 2**32:
            raise ArgumentError(f"color = {color}: expected 0 to {2**32 - 1}, or None")
        native = self._native.split(color, key)
        return None if native is None else Communicator(native)

    def abort(self, text: str) -> None:
        """Ends the job for all ranks, also in the middle of a call of another thread: each gets an error with this text."""
        self._native.abort(text)

    def close(self) -> None:
        """Leaves the job, after calls in the background have ended.

        The others go on until they need this rank. Rank 0, where it runs the switch, stays until the others have left as well. Nothing
        happens where that is done already.
        """
        _open.discard(self)
        self._native.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The others would wait for what this rank will not do any more. Where the job has failed they know.
        if error is not None and not isinstance(error, FaninError) and not self.closed:
            self.abort(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        self.close()

    # How calls are made

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.world:
            raise ArgumentError(f"root = {root}: there are only ranks 0 to {self.world - 1}")

    def _same_shape(self, kind: str, array: Any, op: AnyOperator, out: Any, root: int = 0) -> _Call:
        given = view_input(array)
        result = self._result(given, given.shape, out)
        return _reduction(kind, op, given, given, result, result.array, root)

    @staticmethod
    def _result(given: View, shape: tuple[int, ...], out: Any) -> View:
        if out is None:
            return view_output(given.empty(shape))
        # In place, and seen already: what was copied is another array.
        result = given if out is given.array and given.writable else view_output(out)
        if result.shape != shape or result.dtype != given.dtype:
            raise ArgumentError(
                f"out has shape {result.shape} of {result.dtype}: expected {shape} of {given.dtype}, by the array and the world"
            )
        return result

    def _run(self, prepare: Callable[..., _Call], *arguments: Any) -> Any:
        call = self._prepared(prepare, arguments)
        self._native.call(*call.arguments())
        return call.returned

    def _start(self, prepare: Callable[..., _Call], *arguments: Any) -> Handle[Any]:
        call = self._prepared(prepare, arguments)
        native = self._native.call_async(*call.arguments(), keep=call)
        return Handle(native, call.returned)

    def _prepared(self, prepare: Callable[..., _T], arguments: tuple[Any, ...]) -> _T:
        try:
            return prepare(*arguments)
        except ArgumentError as error:
            error.rank, error.job = self.rank, self.job
            raise


class _SparseHandle(Handle[tuple[Any, Any]]):
    """A sparse allreduce in the background, whose arrays are made when their length is known."""

    def __init__(self, comm: Communicator, native: _native.Handle, sparse: _native.SparseResult, given: View) -> None:
        super().__init__(native, (None, None))
        self._comm = comm
        self._sparse: _native.SparseResult | None = sparse
        self._given = given

    def wait(self, timeout: float | None = None) -> tuple[Any, Any]:
        super().wait(timeout)
        sparse, self._sparse = self._sparse, None
        if sparse is not None:
            self._result = sparse_arrays(sparse, self._given)
            self._comm._sparse_path = sparse.path
        return self._result


def _sparse(indices: Any, values: Any, size: int, op: str) -> tuple[View, np.ndarray[Any, Any], str]:
    """The memory of what a rank gives, and the engine's name for the type of its elements."""
    if not 0 <= size < 2**63:
        raise ArgumentError(f"size = {size}: expected 0 to {2**63 - 1}")
    given, places = view_input(values), view_indices(indices)
    dtype, each = element_type(given, op)
    if each != 1:
        raise ArgumentError(f"no sparse {op} of {given.dtype}: give real and imaginary parts as elements of their own")
    if given.shape != places.shape:
        raise ArgumentError(f"values are of shape {given.shape}, and indices of {places.shape}: expected lists of the same length")
    return given, places, dtype


class _Call:
    """A collective on memory, and what its caller gets."""

    __slots__ = ("dtype", "elements", "given", "kind", "op", "result", "returned", "root")

    def __init__(
        self,
        kind: str,
        dtype: str,
        each: int,
        op: str | _native.CustomOperator,
        elements: int,
        given: View | None,
        result: View | None,
        returned: Any,
        root: int,
    ) -> None:
        self.kind = kind
        self.dtype = dtype
        self.op = op
        self.elements = elements * each
        self.given = given
        self.result = result
        self.returned = returned
        self.root = root

    def arguments(self) -> tuple[str, str, str | _native.CustomOperator, int, int, int, int, int, int]:
        given, result = self.given, self.result
        source = (given.address, given.bytes) if given is not None else (0, 0)
        target = (result.address, result.bytes) if result is not None else (0, 0)
        return (self.kind, self.dtype, self.op, self.elements, *source, *target, self.root)


def _reduction(kind: str, op: AnyOperator, share: View, given: View, result: View | None, returned: Any, root: int) -> _Call:
    """A call that reduces; ``share`` is as long as what a rank gets."""
    if isinstance(op, CustomOperator):
        return _Call(kind, "u8", 1, op.native, op.elements_of(share), given, result, returned, root)
    return _Call(kind, *element_type(given, op), op, share.elements, given, result, returned, root)


def _barrier() -> _Call:
    return _Call("barrier", "u8", 1, "max", 0, None, None, None, 0)


@atexit.register
def _close_all() -> None:
    # The other ranks shall hear that this one has left, not that it has died; and threads must end before the interpreter does.
    for communicator in list(_open):
        communicator.close()
