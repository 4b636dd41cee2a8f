"""A cable between two switches that counts what passes: datagrams of loopback, each a frame, relayed by a thread. Python's standard library only."""

from __future__ import annotations

import select
import socket
import threading
from dataclasses import dataclass, field

#: Ethernet type and UDP port.
SWITCHES, IPV4, ROCE = 0x88B5, 0x0800, 4_791
#: An RDMA write's opcodes, and that of an acknowledgement.
WRITES, ACKNOWLEDGE = range(0x06, 0x0C), 0x11
#: Ethernet, IPv4, UDP, BTH, RETH and ICRC: a write of this length carries nothing.
EMPTY_WRITE = 14 + 20 + 8 + 12 + 16 + 4


def kind(frame: bytes) -> str:
    """Whose frame it is: what switches say to each other, an RDMA write with or without data, an acknowledgement, or something else."""
    ethernet = int.from_bytes(frame[12:14], "big")
    if ethernet == SWITCHES:
        return "switches"
    if ethernet != IPV4 or len(frame) < EMPTY_WRITE - 16 or frame[23] != 17 or int.from_bytes(frame[36:38], "big") != ROCE:
        return "others"
    if frame[42] in WRITES:
        return "data" if len(frame) > EMPTY_WRITE else "questions"
    return "acknowledgements" if frame[42] == ACKNOWLEDGE else "others"


@dataclass
class Counts:
    """Of one direction."""

    frames: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)

    def add(self, frame: bytes) -> None:
        """One more."""
        name = kind(frame)
        self.frames[name] = self.frames.get(name, 0) + 1
        self.bytes[name] = self.bytes.get(name, 0) + len(frame)


class Uplink:
    """A cable; `below` and `above` are its ends as `--transparent` names them."""

    def __init__(self) -> None:
        self._ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        free = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for one in (*self._ends, *free):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            one.bind(("127.0.0.1", 0))
        self._peers = [one.getsockname() for one in free]
        for one in free:
            one.close()
        self.below, self.above = (
            f"udp:127.0.0.1:{peer[1]}/127.0.0.1:{end.getsockname()[1]}" for peer, end in zip(self._peers, self._ends, strict=True)
        )
        #: What the one below has sent, and the one above.
        self.up, self.down = Counts(), Counts()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._relay, daemon=True)

    def __enter__(self) -> Uplink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for end in self._ends:
            end.close()

    def _relay(self) -> None:
        ways = {self._ends[0]: (self._ends[1], self._peers[1], self.up), self._ends[1]: (self._ends[0], self._peers[0], self.down)}
        while not self._stop.is_set():
            for end in select.select(self._ends, [], [], 0.1)[0]:
                other, peer, counts = ways[end]
                try:
                    frame = end.recv(1 << 16)
                    counts.add(frame)
                    other.sendto(frame, peer)
                except OSError:
                    # The switch there has not begun, or has ended: as a cable with nobody at its end.
                    continue
