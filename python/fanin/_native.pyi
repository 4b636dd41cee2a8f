"""The native module: collectives over memory at given addresses. Programs use the package around it."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias, final

__all__ = [
    "Communicator",
    "CustomOperator",
    "Handle",
    "Host",
    "Reproduction",
    "Results",
    "SparseResult",
    "Sweep",
    "Table",
    "TestbedResults",
    "__version__",
    "advise",
    "papers",
    "repro",
    "run_part",
    "simulate",
    "sweep",
    "testbed",
]

__version__: str

_Kind: TypeAlias = Literal["allreduce", "reduce", "broadcast", "barrier", "reduce_scatter", "all_gather"]

@final
class Communicator:
    """A process's place in a job."""

    @staticmethod
    def join(
        *,
        rank: int | None = ...,
        world: int | None = ...,
        job: str | None = ...,
        switch: str | None = ...,
        fabric: str | None = ...,
        fabric_host: str | None = ...,
        system: str | None = ...,
        fallback: str | None = ...,
        rendezvous: str | None = ...,
        timeout: float | str | None = ...,
        stall_notice: float | str | None = ...,
        transport: str | None = ...,
        wait: str | None = ...,
        bind: str | None = ...,
        payload: int | None = ...,
        window: int | None = ...,
        fixed_point: bool | None = ...,
        reproducible: bool | str | None = ...,
        sparse: str | None = ...,
        token: str | None = ...,
        tls: str | None = ...,
        tls_name: str | None = ...,
        tls_cert: str | None = ...,
        tls_key: str | None = ...,
        notices: Callable[[str], object] | None = ...,
        operators: Sequence[CustomOperator] | None = ...,
    ) -> Communicator:
        """Joins a job as the arguments say."""

    @staticmethod
    def from_env(
        *,
        rank: int | None = ...,
        world: int | None = ...,
        job: str | None = ...,
        switch: str | None = ...,
        fabric: str | None = ...,
        fabric_host: str | None = ...,
        system: str | None = ...,
        fallback: str | None = ...,
        rendezvous: str | None = ...,
        timeout: float | str | None = ...,
        stall_notice: float | str | None = ...,
        transport: str | None = ...,
        wait: str | None = ...,
        bind: str | None = ...,
        payload: int | None = ...,
        window: int | None = ...,
        fixed_point: bool | None = ...,
        reproducible: bool | str | None = ...,
        sparse: str | None = ...,
        token: str | None = ...,
        tls: str | None = ...,
        tls_name: str | None = ...,
        tls_cert: str | None = ...,
        tls_key: str | None = ...,
        notices: Callable[[str], object] | None = ...,
        operators: Sequence[CustomOperator] | None = ...,
    ) -> Communicator:
        """Joins a job as the environment says; arguments win."""

    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def job(self) -> str: ...
    @property
    def path(self) -> str:
        """How vectors travel and why so, for people."""

    @property
    def transport(self) -> Literal["shm", "udp", "fabric", "shm+fabric", "alone"]: ...
    @property
    def packets(self) -> tuple[int, int]:
        """Packets that this rank has sent so far, and those among them that were sent again."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, or belongs to the process that this one was forked from."""

    def call(
        self,
        kind: _Kind | str,
        dtype: str,
        op: str | CustomOperator,
        elements: int,
        input_address: int,
        input_bytes: int,
        output_address: int,
        output_bytes: int,
        root: int = 0,
        timeout: float | None = None,
    ) -> None:
        """A collective over memory that the caller keeps alive and to itself until this returns.

        ``elements`` is the length of a share: of the vector, or of one rank's part of it (reduce-scatter, all-gather). The same address for
        input and output means in place; otherwise they must not overlap. ``timeout`` is of this call alone.
        """

    def call_async(
        self,
        kind: _Kind | str,
        dtype: str,
        op: str | CustomOperator,
        elements: int,
        input_address: int,
        input_bytes: int,
        output_address: int,
        output_bytes: int,
        root: int = 0,
        keep: Any = None,
        timeout: float | None = None,
    ) -> Handle:
        """As ``call``, in the background: ``keep`` is held until then, and owns the memory."""

    def allreduce_sparse_async(
        self,
        dtype: str,
        op: str,
        size: int,
        indices_address: int,
        indices_bytes: int,
        values_address: int,
        values_bytes: int,
        timeout: float | None = None,
    ) -> tuple[Handle, SparseResult]:
        """A sparse allreduce in the background.

        Its entries, indices of 64 bits and as many values, are copied before this returns.
        """

    @property
    def timeout(self) -> float:
        """How long calls that are made from now on wait, in seconds."""

    def set_timeout(self, timeout: float) -> None:
        """Sets how long calls of this rank that are made from now on wait, in seconds."""

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Divides the ranks into communicators by ``color``, in the order of ``key``. All ranks call it."""

    def abort(self, text: str) -> None:
        """Ends the job for all ranks, also in the middle of a call: each gets an error with this text."""

    def close(self) -> None:
        """Leaves the job, after calls in the background have ended."""

@final
class CustomOperator:
    """A WebAssembly module that was checked and compiled."""

    def __new__(cls, name: str, module: bytes, element_bytes: int | None = None) -> CustomOperator:
        """``name`` is for messages. Where ``element_bytes`` is given, elements must be as long as that."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the module, in hexadecimal digits."""

    @property
    def element_bytes(self) -> int:
        """Bytes of its elements."""

@final
class Handle:
    """A call in the background."""

    def done(self) -> bool:
        """Whether the call has ended, well or not."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the call, for ``timeout`` seconds at most; ``False`` where that was not enough.

        Raises what has gone wrong. Where Ctrl-C interrupts it, the job ends for all ranks.
        """

    def error(self) -> Exception | None:
        """What has gone wrong; ``None`` where nothing has, or not yet."""

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """Calls ``callback`` with a handle of the call once that has ended.

        In the thread that runs calls in the background, or at once where it has ended already.
        """

@final
class SparseResult:
    """The result of a sparse allreduce, once its handle has ended well."""

    @property
    def entries(self) -> int:
        """How many indices it has."""

    @property
    def path(self) -> str:
        """How it was computed and why so, for people."""

    @property
    def way(self) -> Literal["alone", "lists", "dense"]:
        """How it was computed."""

    def write(self, indices_address: int, indices_bytes: int, values_address: int, values_bytes: int) -> None:
        """Writes indices (64 bits each) and values to memory that is the caller's and exactly as long."""

@final
class Host:
    """A switch in this process, for jobs of which it is rank 0."""

    def __new__(
        cls,
        listen: str,
        *,
        linger: float = 60.0,
        tls: str | None = None,
        tls_name: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
    ) -> Host:
        """``listen`` is ``IP:PORT``, port 0 for any; ``linger``, in seconds, how long ``close`` waits for other ranks to leave.

        The others are those of :class:`Communicator`, and come from the environment where they are not given.
        """

    @property
    def address(self) -> str:
        """``IP:PORT`` at which it listens."""

    def close(self) -> None:
        """Ends once the other ranks have left its jobs, or when it has lingered long enough."""

@final
class Table:
    """A table of results."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""

    def __len__(self) -> int: ...
    def column(self, name: str) -> list[Any]:
        """The values of a column; ``None`` where a row has none."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as an Arrow stream."""

@final
class Results:
    """What a plan's runs have given."""

    @property
    def ok(self) -> bool: ...
    @property
    def plan(self) -> str: ...
    @property
    def csv(self) -> str: ...
    @property
    def json(self) -> str: ...
    @property
    def runs(self) -> Table: ...
    @property
    def jobs(self) -> Table: ...
    @property
    def workers(self) -> Table: ...
    @property
    def links(self) -> Table: ...
    @property
    def memory(self) -> Table: ...
    @property
    def series(self) -> Table: ...
    @property
    def communication(self) -> Table: ...
    def pictures(self) -> list[tuple[str, str]]:
        """The pictures that the plan asks for, or the usual ones: name and SVG."""

def simulate(
    plan: Any,
    *,
    is_text: bool = False,
    sets: dict[str, Any] | None = None,
    seed: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    elsewhere: Callable[[bytes, int], Iterable[tuple[int, bytes]]] | None = None,
) -> Results:
    """Runs all points of a plan and gives what came out.

    ``plan`` is a dictionary, or a text where ``is_text``, or else the path of a file.
    """

def run_part(bundle: bytes, first: int, count: int) -> bytes:
    """Computes some of a bundle's runs, by their numbers; gives bytes for where the plan is."""

@final
class Sweep:
    """A plan whose runs are computed part by part."""

    @property
    def bundle(self) -> bytes:
        """The plan with all files that it names, for ``run_part``."""

    @property
    def identity(self) -> str:
        """What its runs depend on, as one word."""

    @property
    def runs(self) -> int:
        """How many runs it has."""

    @property
    def plan(self) -> str:
        """The plan, as a file for ``fanin sim``."""

    def tables(self, first: int, part: bytes) -> tuple[list[tuple[str, Table]], list[str]]:
        """All tables of a part that begins with this run, by name, and what is wrong with its runs, in words."""

    def describe(self, run: int) -> str:
        """A run by its number: seed and place, in words."""

def sweep(plan: Any, *, is_text: bool = False, sets: dict[str, Any] | None = None, seed: int | None = None) -> Sweep:
    """Reads and checks a plan whose runs are computed part by part. Arguments are those of ``simulate``."""

def papers(experiments: str | PathLike[str] | None = None) -> list[tuple[str, list[str]]]:
    """Papers and their figures: of the experiments in this folder, or of those that the package has in it."""

@final
class Reproduction:
    """A paper's figures that have been run."""

    @property
    def figures(self) -> list[str]: ...
    @property
    def problems(self) -> list[str]: ...
    @property
    def json(self) -> str: ...
    @property
    def text(self) -> str: ...
    def results(self, figure: int) -> Results | None:
        """What the runs of a figure have given, by its place; ``None`` for one that is computed."""
    def pictures(self, figure: int) -> list[tuple[str, str]]:
        """The pictures of a figure, by its place: name and SVG."""
    def report(self) -> str:
        """The page of the paper, as HTML."""
    def write(self, folder: str | PathLike[str]) -> None:
        """Writes what ``fanin repro --out`` writes into a folder, which is made where it is missing."""

def repro(
    paper: str,
    figures: Sequence[str],
    *,
    quick: bool = False,
    sets: dict[str, Any] | None = None,
    causes: bool = True,
    experiments: str | PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    elsewhere: Callable[[bytes, int], Iterable[tuple[int, bytes]]] | None = None,
) -> Reproduction:
    """Runs a paper's figures and holds what comes out against what the paper says. All figures where ``figures`` is empty."""

@final
class TestbedResults:
    """What came out of a run on a testbed."""

    @property
    def problems(self) -> list[str]: ...
    @property
    def text(self) -> str: ...
    @property
    def json(self) -> str: ...
    def write(self, out: str | PathLike[str]) -> None:
        """Writes the results, as ``fanin testbed --out`` does."""

def testbed(
    program: str | PathLike[str],
    fabric: Any,
    workload: Any,
    *,
    fabric_is_text: bool = False,
    workload_is_text: bool = False,
    sets: dict[str, Any] | None = None,
    seed: int | None = None,
    namespaces: bool = False,
    logs: str | PathLike[str] | None = None,
) -> TestbedResults:
    """Runs a workload on a fabric of processes of ``program``.

    ``fabric`` and ``workload`` are dictionaries, or texts where the keyword says so, or else the paths of files.
    """

def advise(
    network: str | PathLike[str],
    jobs: str | PathLike[str],
    *,
    budget: float = 8.0,
    price_file: str | PathLike[str] | None = None,
    systems: list[str] | None = None,
    order: list[str] | None = None,
    simulate: bool = True,
    draws: int = 3,
    out: str | PathLike[str] | None = None,
) -> tuple[str, str]:
    """Advice as JSON, and in words."""
