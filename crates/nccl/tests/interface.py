"""NCCL's plugin interface, versions 8 to 12, for ctypes: written from NCCL's documentation and not from the library that is tested."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char, c_char_p, c_float, c_int, c_int16, c_size_t, c_uint64, c_ulong, c_void_p
from typing import Any

VERSIONS = (8, 9, 10, 11, 12)
HANDLE_BYTES = 128
REQUESTS_MAX = 32
SUCCESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 0, 4, 5, 6
HOST, CUDA = 1, 2
OPERATORS = ("sum", "prod", "max", "min", "avg")
#: By NCCL's numbers: name, bytes.
TYPES = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8),
    ("float16", 2), ("float32", 4), ("float64", 8), ("bfloat16", 2), ("float8e4m3", 1), ("float8e5m2", 1),
)  # fmt: skip
#: Level, flags, file, line, format, and what the format asks for: one text.
LOGGER = ctypes.CFUNCTYPE(None, c_int, c_ulong, c_char_p, c_int, c_char_p, c_char_p)


class Handle(ctypes.Structure):
    """What whoever listens gives to those who connect."""

    _fields_ = (("bytes", c_char * HANDLE_BYTES),)


class Part(ctypes.Structure):
    """`ncclNetSGE`: a stretch of registered memory."""

    _fields_ = (("mhandle", c_void_p), ("address", c_void_p), ("size", c_size_t))


def properties(version: int) -> type[ctypes.Structure]:
    """`ncclNetProperties` of a version."""
    fields: list[tuple[str, Any]] = [("name", c_char_p), ("pciPath", c_char_p), ("guid", c_uint64), ("ptrSupport", c_int), ("regIsGlobal", c_int)]
    if version >= 9:
        fields += [("forceFlush", c_int)]
    fields += [("speed", c_int), ("port", c_int), ("latency", c_float), ("maxComms", c_int), ("maxRecvs", c_int)]
    fields += [("netDeviceType", c_int), ("netDeviceVersion", c_int)]
    if version >= 9:
        # `vProps`: a number, and devices.
        fields += [("ndevs", c_int), ("devs", c_int * (8 if version >= 12 else 4)), ("maxP2pBytes", c_size_t), ("maxCollBytes", c_size_t)]
    if version >= 11:
        fields += [("maxMultiRequestSize", c_int)]
    if version >= 12:
        fields += [("railId", c_int16), ("planeId", c_int16)]
    return type(f"Properties{version}", (ctypes.Structure,), {"_fields_": fields})


def _common(version: int) -> tuple[list[Any], list[Any], list[tuple[str, list[Any]]]]:
    """What comes first among the arguments of `listen`, those of `init` up to the logger, and the functions that both tables have."""
    context = [c_void_p] if version >= 11 else []
    init = [POINTER(c_void_p), c_uint64] if version >= 11 else []
    memory: list[tuple[str, list[Any]]] = [
        ("regMr", [c_void_p, c_void_p, c_size_t, c_int, POINTER(c_void_p)]),
        ("regMrDmaBuf", [c_void_p, c_void_p, c_size_t, c_int, c_uint64, c_int, POINTER(c_void_p)]),
        ("deregMr", [c_void_p, c_void_p]),
    ]
    return context, init, memory


def _net(version: int) -> list[tuple[str, list[Any]]]:
    context, init, memory = _common(version)
    if version >= 11:
        init = [*init, c_void_p]
    logged = [LOGGER, *([c_void_p] if version >= 10 else [])]
    size = c_size_t if version >= 9 else c_int
    profiled = [c_void_p] if version >= 10 else []
    config = [c_void_p] if version == 10 else []
    functions = [
        ("init", [*init, *logged]),
        ("devices", [POINTER(c_int)]),
        ("getProperties", [c_int, c_void_p]),
        ("listen", [*context, c_int, c_void_p, POINTER(c_void_p)]),
        ("connect", [*context, c_int, *config, c_void_p, POINTER(c_void_p), c_void_p]),
        ("accept", [c_void_p, POINTER(c_void_p), c_void_p]),
        *memory,
        ("isend", [c_void_p, c_void_p, size, c_int, c_void_p, *profiled, POINTER(c_void_p)]),
        ("irecv", [c_void_p, c_int, POINTER(c_void_p), POINTER(size), POINTER(c_int), POINTER(c_void_p), *profiled, POINTER(c_void_p)]),
        ("iflush", [c_void_p, c_int, POINTER(c_void_p), POINTER(c_int), POINTER(c_void_p), POINTER(c_void_p)]),
        ("test", [c_void_p, POINTER(c_int), POINTER(c_int)]),
        ("closeSend", [c_void_p]),
        ("closeRecv", [c_void_p]),
        ("closeListen", [c_void_p]),
        ("getDeviceMr", [c_void_p, c_void_p, POINTER(c_void_p)]),
        ("irecvConsumed", [c_void_p, c_int, c_void_p]),
    ]
    return functions + _behind(version) + ([("setNetAttr", [c_void_p, c_void_p])] if version >= 11 else [])


def _collective(version: int) -> list[tuple[str, list[Any]]]:
    context, init, memory = _common(version)
    count = c_size_t if version >= 9 else c_int
    functions = [
        ("init", [*init, LOGGER]),
        ("devices", [POINTER(c_int)]),
        ("getProperties", [c_int, c_void_p]),
        ("listen", [*context, c_int, c_void_p, POINTER(c_void_p)]),
        ("connect", [POINTER(c_void_p), c_int, c_int, c_void_p, POINTER(c_void_p)]),
        ("reduceSupport", [c_int, c_int, POINTER(c_int)]),
        *memory,
        ("iallreduce", [c_void_p, c_void_p, c_void_p, count, c_int, c_int, c_void_p, c_void_p, POINTER(c_void_p)]),
        ("iallgather", [c_void_p, c_void_p, c_int, POINTER(Part), c_size_t, c_size_t, c_size_t, c_void_p, POINTER(c_void_p)]),
        ("ireducescatter", [c_void_p, c_int, POINTER(Part), c_void_p, c_size_t, c_size_t, c_size_t, c_int, c_int, c_void_p, POINTER(c_void_p)]),
        ("iflush", [c_void_p, c_void_p, c_int, c_void_p, POINTER(c_void_p)]),
        ("test", [c_void_p, POINTER(c_int), POINTER(c_int)]),
        ("closeColl", [c_void_p]),
        ("closeListen", [c_void_p]),
    ]
    return functions + _behind(version)


def _behind(version: int) -> list[tuple[str, list[Any]]]:
    made = [("makeVDevice", [POINTER(c_int), c_void_p])] if version >= 9 else []
    return made + ([("finalize", [c_void_p])] if version >= 11 else [])


class Wrong(Exception):
    """A function gave another status than the test expects, or something else is not as it must be."""


class Table:
    """A plugin's table of functions, as NCCL finds it: by its symbol."""

    def __init__(self, library: ctypes.CDLL, kind: str, version: int) -> None:
        self.version, self.kind = version, kind
        functions = _net(version) if kind == "Net" else _collective(version)
        slots = (c_void_p * (1 + len(functions))).in_dll(library, f"nccl{kind}Plugin_v{version}")
        self.name = ctypes.cast(slots[0] or 0, c_char_p).value
        self._functions: dict[str, Callable[..., int] | None] = {}
        for slot, (name, arguments) in zip(list(slots)[1:], functions, strict=True):
            self._functions[name] = ctypes.CFUNCTYPE(c_int, *arguments)(slot) if slot else None

    def has(self, name: str) -> bool:
        """Whether the table has such a function, and it is there."""
        return self._functions.get(name) is not None

    def status(self, name: str, *arguments: Any) -> int:
        """What a function gives."""
        function = self._functions[name]
        if function is None:
            raise Wrong(f"{self.kind} v{self.version}: {name} is not there")
        return function(*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that has to succeed."""
        status = self.status(name, *arguments)
        if status != SUCCESS:
            raise Wrong(f"{self.kind} v{self.version}: {name} gave {status}")

    def fails(self, expected: int, name: str, *arguments: Any) -> None:
        """Calls a function that has to fail in one way."""
        status = self.status(name, *arguments)
        if status != expected:
            raise Wrong(f"{self.kind} v{self.version}: {name} gave {status}, expected {expected}")

    def made(self, name: str, *arguments: Any) -> int:
        """The pointer that a function gives by its last argument, which is left out here; 0 for NULL."""
        place = c_void_p()
        self.call(name, *arguments, ctypes.byref(place))
        return place.value or 0

    @property
    def context(self) -> tuple[None, ...]:
        """What stands first where functions take a context."""
        return (None,) if self.version >= 11 else ()

    def init(self, logger: Any) -> None:
        """Initializes the plugin as NCCL of this version does."""
        context = (ctypes.byref(c_void_p()), c_uint64(7)) if self.version >= 11 else ()
        config = (None,) if self.kind == "Net" and self.version >= 11 else ()
        profiler = (None,) if self.kind == "Net" and self.version >= 10 else ()
        self.call("init", *context, *config, logger, *profiler)
