"""One rank of the tests of libnccl-net-fanin.so: loads the library and calls it as NCCL does.

Usage: rank.py LIBRARY FOLDER RANK RANKS VERSION SCENARIO

Ranks exchange handles by files in FOLDER, as NCCL does by its bootstrap. Every element of every result is compared. Prints what was said to NCCL's
log, and ends with 1 where something is wrong. Python's standard library only.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import struct
import sys
import time
from collections.abc import Callable, Sequence
from ctypes import c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from interface import CUDA, HOST, INVALID_ARGUMENT, INVALID_USAGE, LOGGER, OPERATORS, REMOTE_ERROR, REQUESTS_MAX, SUCCESS, TYPES, Handle, Part, Table, Wrong, properties

#: How long anything may take, in seconds.
LIMIT = 60.0
#: How the bytes of an element are read and written: bfloat16 is the upper half of a float.
CODES = {"int8": "b", "uint8": "B", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d"}


def check(is_right: bool, words: str) -> None:
    """Something has to be so."""
    if not is_right:
        raise Wrong(words)


def pack(name: str, numbers: Sequence[float]) -> bytes:
    """Elements as bytes."""
    if name == "bfloat16":
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    return struct.pack(f"<{len(numbers)}{CODES[name]}", *numbers)


class Memory:
    """Bytes at an address, which is what NCCL gives."""

    def __init__(self, content: bytes | int) -> None:
        self.size = content if isinstance(content, int) else len(content)
        self.buffer = ctypes.create_string_buffer(b"\xa5" * self.size if isinstance(content, int) else content, self.size or 1)

    @property
    def address(self) -> int:
        """Where it begins."""
        return ctypes.addressof(self.buffer)

    def bytes(self, start: int = 0, end: int | None = None) -> bytes:
        """What is in it."""
        return self.buffer.raw[start : self.size if end is None else end]


class Rank:
    """A process of the job."""

    def __init__(self, arguments: Sequence[str]) -> None:
        library, folder, rank, ranks, version, self.scenario = arguments
        self.library = ctypes.CDLL(library)
        self.folder, self.rank, self.ranks, self.version = Path(folder), int(rank), int(ranks), int(version)
        self.log: list[str] = []
        self.logger = LOGGER(self.hear)
        self.net = Table(self.library, "Net", self.version)
        self.coll = Table(self.library, "CollNet", self.version)
        self.count = itertools.count()

    def hear(self, level: int, _flags: int, _file: bytes, _line: int, form: bytes, words: bytes) -> None:
        """NCCL's log."""
        check(form.count(b"%") == 1 and form.endswith(b"%s"), f"the format is {form!r}")
        self.log.append(f"{'WARN' if level == 2 else 'INFO'} {form.replace(b'%s', words).decode()}")

    def share(self, handle: Handle) -> list[Handle]:
        """The handles of all ranks."""
        turn = next(self.count)
        mine = self.folder / f"{turn}-{self.rank}"
        mine.with_suffix(".new").write_bytes(bytes(handle))
        mine.with_suffix(".new").rename(mine)
        handles = []
        for rank in range(self.ranks):
            path = self.folder / f"{turn}-{rank}"
            self.until(path.exists, f"rank {rank} to listen")
            handles.append(Handle.from_buffer_copy(path.read_bytes()))
        return handles

    @staticmethod
    def until(what: Callable[[], Any], words: str) -> None:
        """Waits, as NCCL's proxy thread does: by asking again."""
        deadline = time.monotonic() + LIMIT
        while not what():
            check(time.monotonic() < deadline, f"waited {LIMIT} s for {words}")
            time.sleep(0)

    def start(self, table: Table) -> None:
        """What NCCL does first."""
        table.init(self.logger)
        count = c_int()
        table.call("devices", ctypes.byref(count))
        check(count.value >= 1, "there is no device")
        for device in range(count.value):
            kind = properties(self.version)
            room = ctypes.create_string_buffer(b"\x5a" * (ctypes.sizeof(kind) + 64), ctypes.sizeof(kind) + 64)
            table.call("getProperties", device, ctypes.addressof(room))
            check(room.raw[ctypes.sizeof(kind) :] == b"\x5a" * 64, "the properties are longer than those of the version")
            given = kind.from_buffer_copy(room.raw[: ctypes.sizeof(kind)])
            check(given.ptrSupport == HOST and given.maxRecvs == 1 and given.maxComms > 1 and given.speed > 0, "what the properties say")
            check(given.netDeviceType == 0 and 0 < given.latency < 1000 and given.name.decode() in os.listdir("/sys/class/net"), "what the properties say")
            if self.version >= 9:
                check(given.ndevs == 1 and given.devs[0] == device and given.maxCollBytes == given.maxP2pBytes == 1 << 40, "what the device is made of")
            if self.version >= 11:
                check(given.maxMultiRequestSize == 1, "requests at once")
            if self.version >= 12:
                check(given.railId == -1 and given.planeId == -1, "rail and plane")
        table.fails(INVALID_ARGUMENT, "getProperties", count.value, ctypes.addressof(ctypes.create_string_buffer(512)))
        check((table.version >= 9) == table.has("makeVDevice") and (table.version >= 11) == table.has("finalize"), "the functions of the version")
        if table.version >= 9:
            table.fails(INVALID_USAGE, "makeVDevice", ctypes.byref(c_int()), None)

    def end(self, table: Table) -> None:
        """What NCCL does last."""
        if table.version >= 11:
            table.call("finalize", None)

    # Messages.

    def connection(self, to_send: bool) -> int:
        """One way between ranks 0 and 1: rank 0 sends where `to_send` is its."""
        handle = Handle()
        listener = self.net.made("listen", *self.net.context, 0, ctypes.addressof(handle))
        handles = self.share(handle)
        made = c_void_p()
        if to_send:
            peer = handles[1 - self.rank]
            config = (None,) if self.version == 10 else ()
            self.until(lambda: self.net.call("connect", *self.net.context, 0, *config, ctypes.addressof(peer), ctypes.byref(made), None) or made.value, "the peer")
        else:
            self.until(lambda: self.net.call("accept", listener, ctypes.byref(made), None) or made.value, "the peer")
        self.net.call("closeListen", listener)
        return made.value or 0

    def registered(self, table: Table, comm: int, memory: Memory) -> int:
        """Registers memory."""
        return table.made("regMr", comm, memory.address, memory.size, HOST)

    def send(self, comm: int, memory: Memory, tag: int, handle: int = 0) -> int:
        """A request, or 0."""
        profiled = (None,) if self.version >= 10 else ()
        return self.net.made("isend", comm, memory.address, memory.size, tag, handle, *profiled)

    def receive(self, comm: int, memory: Memory, tag: int, handle: int = 0) -> int:
        """A request, or 0."""
        size = c_size_t if self.version >= 9 else c_int
        profiled = (None,) if self.version >= 10 else ()
        one = ((c_void_p * 1)(memory.address), (size * 1)(memory.size), (c_int * 1)(tag), (c_void_p * 1)(handle))
        return self.net.made("irecv", comm, 1, *one, *profiled)

    def done(self, table: Table, request: int) -> int | None:
        """With how many bytes a request has ended."""
        done, size = c_int(), c_int(-1)
        table.call("test", request, ctypes.byref(done), ctypes.byref(size))
        return size.value if done.value else None

    def wait(self, table: Table, request: int) -> int:
        """Waits until a request has ended; with how many bytes."""
        ended: list[int] = []
        self.until(lambda: (size := self.done(table, request)) is not None and (ended.append(size) or True), "a request")
        return ended[0]

    def messages(self) -> None:
        """Both ways at once, over several connections, as many requests as there may be, in any order."""
        self.start(self.net)
        dice = random.Random(self.version)
        outward, inward = [], []
        for turn in range(4):
            comm = self.connection(to_send=(turn % 2 == 0) == (self.rank == 0))
            (outward if (turn % 2 == 0) == (self.rank == 0) else inward).append(comm)
        lengths = [[dice.choice([0, 1, 7, 4096, 65_537, 300_000]) for _ in range(REQUESTS_MAX)] for _ in range(4)]
        content = lambda way, index: bytes((way * 31 + index * 7 + at) % 251 for at in range(min(lengths[way][index], 997))) * (lengths[way][index] // 997 + 1)
        requests: list[tuple[int, Memory, bytes | None]] = []
        ways = {"send": [0, 2] if self.rank == 0 else [1, 3], "receive": [1, 3] if self.rank == 0 else [0, 2]}
        registered: list[tuple[int, int]] = []
        for index in range(REQUESTS_MAX):
            for comm, way in zip(inward, ways["receive"], strict=True):
                memory = Memory(lengths[way][index] + index % 3)
                registered.append((comm, self.registered(self.net, comm, memory)))
                requests.append((self.receive(comm, memory, way, registered[-1][1]), memory, content(way, index)[: lengths[way][index]]))
            for comm, way in zip(outward, ways["send"], strict=True):
                memory = Memory(content(way, index)[: lengths[way][index]])
                registered.append((comm, self.registered(self.net, comm, memory)))
                requests.append((self.send(comm, memory, way, registered[-1][1]), memory, None))
        check(all(request for request, _, _ in requests), "a request was put off")
        spare = Memory(4)
        check(self.receive(inward[0], spare, 9) == 0, "there is room for more requests than there may be")
        dice.shuffle(requests)
        for request, memory, expected in requests:
            size = self.wait(self.net, request)
            if expected is None:
                check(size == memory.size, f"{size} bytes sent of {memory.size}")
            else:
                check(size == len(expected) and memory.bytes(0, size) == expected and set(memory.bytes(size)) <= {0xA5}, "what was received")
                flushed = c_void_p(1)
                self.net.call("iflush", inward[0], 1, (c_void_p * 1)(memory.address), (c_int * 1)(size), (c_void_p * 1)(), ctypes.byref(flushed))
                check(not flushed.value, "there is nothing to flush")
        for comm, handle in registered:
            self.net.call("deregMr", comm, handle)
        self.net.fails(INVALID_USAGE, "regMr", inward[0], spare.address, 4, CUDA, ctypes.byref(c_void_p()))
        self.net.fails(INVALID_USAGE, "regMrDmaBuf", inward[0], spare.address, 4, CUDA, 0, 0, ctypes.byref(c_void_p()))
        self.net.fails(INVALID_ARGUMENT, "test", None, ctypes.byref(c_int()), None)
        # In another order at each rank.
        closing = [("closeSend", comm) for comm in outward] + [("closeRecv", comm) for comm in inward]
        for name, comm in closing if self.rank else reversed(closing):
            self.net.call(name, comm)
        self.end(self.net)

    def peer_dies(self) -> None:
        """What is under way with a peer that is gone ends with an error."""
        self.start(self.net)
        comm = self.connection(to_send=self.rank == 1)
        if self.rank == 1:
            self.until((self.folder / "asked").exists, "rank 0")
            os._exit(0)
        request = self.receive(comm, Memory(64), 0)
        (self.folder / "asked").write_text("")
        status = [SUCCESS]
        self.until(lambda: status.append(self.net.status("test", request, ctypes.byref(c_int()), None)) or status[-1] != SUCCESS, "the peer's end")
        check(status[-1] == REMOTE_ERROR, f"the status is {status[-1]}")
        self.net.call("closeRecv", comm)

    # Collectives.

    def group(self) -> int:
        """A group of all ranks."""
        handle = Handle()
        listener = self.coll.made("listen", *self.coll.context, 0, ctypes.addressof(handle))
        handles = self.share(handle)
        pointers = (c_void_p * self.ranks)(*(ctypes.addressof(handle) for handle in handles))
        group = self.coll.made("connect", pointers, self.ranks, self.rank, listener)
        self.coll.call("closeListen", listener)
        return group

    def numbers(self, name: str, operator: str, elements: int, seed: int) -> list[list[int]]:
        """Vectors of all ranks, whose reductions are exact in every type."""
        dice = random.Random(f"{name} {operator} {seed}")
        least, most = {"prod": (1, 2), "avg": (0, 1)}.get(operator, (0, 5))
        if name.startswith(("float", "bfloat", "int")):
            least -= 0 if operator in ("prod", "avg") else 6
        vectors = [[dice.randint(least, most) for _ in range(elements)] for _ in range(self.ranks)]
        # A mean that is exact.
        return [[number * self.ranks for number in vector] for vector in vectors] if operator == "avg" else vectors

    def reduced(self, operator: str, vectors: Sequence[Sequence[int]]) -> list[float]:
        """What the reduction is."""
        columns = list(zip(*vectors, strict=True))
        if operator == "prod":
            products = [1] * len(columns)
            for vector in vectors:
                products = [product * number for product, number in zip(products, vector, strict=True)]
            return list(products)
        by: dict[str, Callable[[tuple[int, ...]], float]] = {"sum": sum, "max": max, "min": min, "avg": lambda column: sum(column) // self.ranks}
        return [by[operator](column) for column in columns]

    def supported(self, number: int, operator: int) -> bool:
        """Whether the plugin reduces elements of a type so."""
        answer = c_int(-1)
        self.coll.call("reduceSupport", number, operator, ctypes.byref(answer))
        check(answer.value in (0, 1), "the answer")
        return answer.value == 1

    def collectives(self) -> None:
        """Types, operators, windows; two groups at once, several requests of each under way."""
        self.start(self.coll)
        groups = [self.group(), self.group()]
        expected = {(number, operator) for number in range(10) for operator in range(5)}
        expected -= {(number, operator) for number in (3, 5) for operator in (2, 3)} | {(number, 4) for number in range(6)}
        found = {(number, operator) for number in range(len(TYPES)) for operator in range(len(OPERATORS)) if self.supported(number, operator)}
        check(found == expected, f"supported: {sorted(found ^ expected)} differ")
        for turn, (number, operator) in enumerate(sorted(found)):
            self.allreduce(groups[turn % 2], number, operator, elements=[0, 1, 300, 5_000][turn % 4], in_place=turn % 3 == 0)
        self.many(groups)
        for group in groups:
            self.windows(group)
        self.refused(groups[0])
        # In another order at each rank: a group is left without the others.
        for group in groups if self.rank % 2 else reversed(groups):
            self.coll.call("closeColl", group)
        self.end(self.coll)

    def begun(self, name: str, *arguments: Any) -> int:
        """Starts a request, again and again where there is no room yet."""
        requests: list[int] = []
        self.until(lambda: requests.append(self.coll.made(name, *arguments)) or requests[-1], f"room for {name}")
        return requests[-1]

    def allreduce(self, group: int, number: int, operator: int, elements: int, in_place: bool) -> None:
        """One, and all its elements."""
        name, size = TYPES[number]
        vectors = self.numbers(name, OPERATORS[operator], elements, 0)
        given = Memory(pack(name, vectors[self.rank]))
        result = given if in_place else Memory(elements * size)
        handles = [self.registered(self.coll, group, memory) for memory in (given, result)]
        request = self.begun("iallreduce", group, given.address, result.address, elements, number, operator, *handles)
        check(self.wait(self.coll, request) == elements * size, "how many bytes it was")
        flushed = c_void_p(1)
        self.coll.call("iflush", group, result.address, result.size, handles[1], ctypes.byref(flushed))
        check(not flushed.value, "there is nothing to flush")
        check(result.bytes() == pack(name, self.reduced(OPERATORS[operator], vectors)), f"{OPERATORS[operator]} of {name}")
        for handle in handles:
            self.coll.call("deregMr", group, handle)

    def many(self, groups: Sequence[int]) -> None:
        """More than there is room for, in both groups at once; tested in any order."""
        elements, requests = 700, []
        for turn in range(REQUESTS_MAX + 20):
            for which, group in enumerate(groups):
                vectors = self.numbers("float32", "sum", elements, turn * 2 + which)
                given, result = Memory(pack("float32", vectors[self.rank])), Memory(elements * 4)
                request = c_void_p()

                def begin(group: int = group, given: Memory = given, result: Memory = result, request: c_void_p = request) -> bool:
                    self.coll.call("iallreduce", group, given.address, result.address, elements, 7, 0, None, None, ctypes.byref(request))
                    if not request.value:
                        for known in list(requests):
                            self.settle(requests, known)
                    return bool(request.value)

                self.until(begin, "room")
                requests.append((request.value or 0, given, result, pack("float32", self.reduced("sum", vectors))))
        random.Random(self.rank).shuffle(requests)
        self.until(lambda: [self.settle(requests, known) for known in list(requests)] and not requests, "all requests")

    def settle(self, requests: list[tuple[int, Memory, Memory, bytes]], known: tuple[int, Memory, Memory, bytes]) -> None:
        """Looks whether one has ended, and what it gave."""
        if self.done(self.coll, known[0]) is not None:
            check(known[2].bytes() == known[3], "one of many sums")
            requests.remove(known)

    def windows(self, group: int) -> None:
        """All-gathers and reduce-scatters of windows of all kinds, in one part and in several, as NCCL has them for long vectors."""
        dice = random.Random(99)
        elements = 60
        whole = elements * self.ranks
        cases = [(0, whole), (0, 0), (0, 10), (elements - 7, elements + 9), (whole - 1, whole)]
        cases += [tuple(sorted(dice.sample(range(whole + 1), 2))) for _ in range(8)]
        for turn, (start, end) in enumerate(cases):
            cuts = sorted(dice.randint(start, end) for _ in range(turn % 3))
            edges = [start, *cuts, end]
            vectors = self.numbers("int32", "sum", whole, turn)
            own = range(max(start, self.rank * elements), min(end, (self.rank + 1) * elements))
            self.gathered(group, edges, elements, own, vectors)
            self.scattered(group, edges, elements, own, vectors)

    def parts(self, memory: Sequence[Memory]) -> Any:
        """Memory as NCCL tells of it."""
        return (Part * max(1, len(memory)))(*(Part(None, part.address, part.size) for part in memory))

    def gathered(self, group: int, edges: Sequence[int], elements: int, own: range, vectors: Sequence[Sequence[int]]) -> None:
        """The vector of all shares is the shares of the ranks' own vectors, one behind the other."""
        content = [vectors[at // elements][at] for at in range(elements * self.ranks)]
        into = [Memory(4 * (end - start)) for start, end in itertools.pairwise(edges)]
        share = Memory(pack("int32", [content[at] for at in own]))
        window = (4 * elements, 4 * edges[0], 4 * (edges[-1] - edges[0]))
        request = self.begun("iallgather", group, share.address, len(into), self.parts(into), *window, None)
        self.wait(self.coll, request)
        for (start, end), part in zip(itertools.pairwise(edges), into, strict=True):
            check(part.bytes() == pack("int32", content[start:end]), f"all-gather of {edges}")

    def scattered(self, group: int, edges: Sequence[int], elements: int, own: range, vectors: Sequence[Sequence[int]]) -> None:
        """Each gets the sums of its share, as far as it is in the window."""
        given = [Memory(pack("int32", vectors[self.rank][start:end])) for start, end in itertools.pairwise(edges)]
        share = Memory(4 * max(len(own), 0) if edges[-1] - edges[0] != elements * self.ranks else 4 * elements)
        window = (4 * elements, 4 * edges[0], 4 * (edges[-1] - edges[0]))
        request = self.begun("ireducescatter", group, len(given), self.parts(given), share.address, *window, 2, 0, None)
        self.wait(self.coll, request)
        sums = self.reduced("sum", vectors)
        check(share.bytes(0, 4 * len(own)) == pack("int32", [sums[at] for at in own]), f"reduce-scatter of {edges}")

    def refused(self, group: int) -> None:
        """What makes no sense is refused, and nothing is started."""
        memory, place = Memory(64), ctypes.byref(c_void_p())
        part = self.parts([memory])
        for number, operator in ((10, 0), (3, 2), (7, 9), (77, 0)):
            self.coll.fails(INVALID_ARGUMENT, "iallreduce", group, memory.address, memory.address, 4, number, operator, None, None, place)
        self.coll.fails(INVALID_ARGUMENT, "iallreduce", None, memory.address, memory.address, 4, 7, 0, None, None, place)
        self.coll.fails(INVALID_ARGUMENT, "iallgather", group, memory.address, 1, part, 16, 8, 16 * self.ranks, None, place)
        self.coll.fails(INVALID_ARGUMENT, "ireducescatter", group, 1, part, memory.address, 30, 0, 64, 7, 0, None, place)
        self.coll.fails(INVALID_ARGUMENT, "iallgather", group, memory.address, 1, None, 16, 0, 64, None, place)
        self.coll.fails(INVALID_USAGE, "regMr", group, memory.address, 64, CUDA, place)
        self.coll.fails(INVALID_ARGUMENT, "connect", None, self.ranks, self.rank, None, place)

    def member_dies(self) -> None:
        """What is under way in a group that has lost a rank ends with an error, at all others."""
        self.start(self.coll)
        group = self.group()
        self.allreduce(group, 7, 0, 100, in_place=False)
        if self.rank == 1:
            os._exit(0)
        memory = Memory(4_000)
        request = self.begun("iallreduce", group, memory.address, memory.address, 1_000, 7, 0, None, None)
        status = [SUCCESS]
        self.until(lambda: status.append(self.coll.status("test", request, ctypes.byref(c_int()), None)) or status[-1] != SUCCESS, "the loss")
        check(status[-1] == REMOTE_ERROR, f"the status is {status[-1]}")
        check(any("rank 1" in line for line in self.log), "nothing names rank 1")
        self.coll.call("closeColl", group)

    def given_up(self) -> None:
        """A group that is closed with requests under way: those of others end with an error, and none touches memory later."""
        self.start(self.coll)
        group = self.group()
        memory = Memory(4_000)
        if self.rank == 1:
            # Waits for those who are under way, so that they are.
            (self.folder / "go").write_text("")
            self.coll.call("closeColl", group)
            return
        request = self.begun("iallreduce", group, memory.address, memory.address, 1_000, 7, 0, None, None)
        self.until((self.folder / "go").exists, "rank 1")
        if self.rank == 0:
            status = [SUCCESS]
            self.until(lambda: status.append(self.coll.status("test", request, ctypes.byref(c_int()), None)) or status[-1] != SUCCESS, "the end")
        started = time.monotonic()
        self.coll.call("closeColl", group)
        check(time.monotonic() - started < LIMIT / 2, "closing took too long")

    def unlike(self) -> None:
        """Ranks that do not agree about where they meet are told so."""
        if self.rank == 1:
            os.environ["FANIN_SWITCH"] = "127.0.0.1:9"
        self.start(self.coll)
        handle = Handle()
        listener = self.coll.made("listen", *self.coll.context, 0, ctypes.addressof(handle))
        handles = self.share(handle)
        pointers = (c_void_p * self.ranks)(*(ctypes.addressof(handle) for handle in handles))
        self.coll.fails(INVALID_USAGE, "connect", pointers, self.ranks, self.rank, listener, ctypes.byref(c_void_p()))
        self.coll.call("closeListen", listener)
        check(any("set at rank 1 and not at rank 0" in line for line in self.log), "nothing says who differs")


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    rank = Rank(arguments)
    try:
        getattr(rank, rank.scenario)()
    except Wrong as error:
        print("\n".join(rank.log))
        print(f"wrong: rank {rank.rank}: {error}")
        return 1
    print("\n".join(rank.log))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
