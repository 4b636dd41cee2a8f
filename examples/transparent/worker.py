#!/usr/bin/env python3
"""A worker whose vectors are summed inside its TCP connection: nothing but sockets. One process a worker, around `fanin switch --transparent`:

    worker.py --rank 0 --world 3 --listen 10.0.0.1:7700 --successor 10.0.0.2:7700

Prints what the vectors of all workers add up to. docs/transparent.md has the format of messages. Python's standard library only.
"""

from __future__ import annotations

import argparse
import array
import os
import select
import socket
import struct
import time
import zlib

#: magic, version, element type (float32), operator (sum), ring, message, bytes, rank, world, summed.
HEADER = struct.Struct("<4sBBBxIIQHHH2x")
MAGIC, VERSION, FLOAT32, SUM = b"\xfa\x17\x1e\xd0", 1, 0, 0
#: What a switch says before it ends a ring begins so; two bytes of length and a text follow.
REASON = b"\xfa\x17\x1e\xd1"
#: magic, ring, rank, world.
GREETING = struct.Struct("<8sIHH")


def address(text: str) -> tuple[str, int]:
    """IP:PORT."""
    host, port = text.rsplit(":", 1)
    return host, int(port)


def meet(listen: tuple[str, int], successor: tuple[str, int]) -> tuple[socket.socket, socket.socket]:
    """A connection to the successor and one from the predecessor."""
    return connections(socket.create_server(listen), successor)


def connections(server: socket.socket, successor: tuple[str, int]) -> tuple[socket.socket, socket.socket]:
    """The same where the predecessor comes to `server`."""
    for _ in range(200):
        try:
            to = socket.create_connection(successor)
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise SystemExit(f"nobody listens at {successor}")
    return to, server.accept()[0]


def agree(server: socket.socket, successor: tuple[str, int], rank: int, world: int) -> int:
    """A number that no other ring has: rank 0 draws one, and it goes round once, by connections of its own."""
    to, from_ = connections(server, successor)
    with to, from_:
        ring = int.from_bytes(os.urandom(4), "little")
        if rank == 0:
            to.sendall(GREETING.pack(b"fanring1", ring, rank, world))
        from_.settimeout(30)
        came = b""
        while len(came) < GREETING.size:
            part = from_.recv(GREETING.size - len(came))
            if not part:
                raise SystemExit("the predecessor is gone")
            came += part
        magic, said, previous, of = GREETING.unpack(came)
        if (magic, previous, of) != (b"fanring1", (rank - 1) % world, world):
            raise SystemExit(f"the predecessor is rank {previous} of {of}, and rank {(rank - 1) % world} of {world} is expected")
        if rank != 0:
            to.sendall(GREETING.pack(b"fanring1", said, rank, world))
        return said


def reason(to: socket.socket) -> str:
    """What the switch has said before it ended the ring: by the connection to the successor, against the direction of the stream."""
    to.setblocking(True)
    to.settimeout(0.1)
    try:
        said = to.recv(512)
    except OSError:
        said = b""
    length = int.from_bytes(said[4:6], "little")
    if said[:4] != REASON:
        return "a worker has died, or the switch has ended the ring and its log says why"
    return "the switch says: " + said[6 : 6 + length].decode(errors="replace")


def exchange(to: socket.socket, from_: socket.socket, message: bytes, length: int) -> bytes:
    """Sends and receives at once: whoever sends everything first waits for ever where buffers end."""
    to.setblocking(False)
    rest, got = memoryview(message), bytearray()
    while rest or len(got) < length:
        readable, writable, _ = select.select([from_, to] if rest else [from_], [to] if rest else [], [], 30)
        if not readable and not writable:
            raise SystemExit("nothing has moved for 30 s: the switch's log says which worker is late")
        try:
            if writable:
                rest = rest[to.send(rest) :]
            if to in readable:
                raise SystemExit(f"the connection to the successor is gone: {reason(to)}")
            if from_ in readable:
                part = from_.recv(length - len(got))
                if not part:
                    raise SystemExit(f"the connection from the predecessor is gone: {reason(to)}")
                got += part
        except ConnectionError as error:
            raise SystemExit(f"a connection is gone ({error.strerror}): {reason(to)}") from error
    return bytes(got)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--listen", type=address, required=True)
    parser.add_argument("--successor", type=address, required=True)
    parser.add_argument("--ring", type=int, help="a number that these workers have and no others; without it they agree on one")
    args = parser.parse_args()
    server = socket.create_server(args.listen)
    ring = agree(server, args.successor, args.rank, args.world) if args.ring is None else args.ring
    to, from_ = connections(server, args.successor)
    for message, vector in enumerate(([1.0, 2.0, 3.0, args.rank], [args.rank + 0.5] * 100_000)):
        data = array.array("f", vector).tobytes()
        header = HEADER.pack(MAGIC, VERSION, FLOAT32, SUM, ring, message, len(data), args.rank, args.world, 0)
        padding = bytes(-len(data) % 8)
        got = exchange(to, from_, header + data + padding + bytes(8), len(header) + len(data) + len(padding) + 8)
        if HEADER.unpack_from(got)[-1] != args.world:
            raise SystemExit("nobody has summed: is there a `fanin switch --transparent` between the workers?")
        crc = zlib.crc32(got[:-8])
        if got[-8:] != struct.pack("<II", crc, ~crc & 0xFFFFFFFF):
            raise SystemExit("a part of the result was not summed: the switch was restarted meanwhile")
        sums = array.array("f", got[HEADER.size : HEADER.size + len(data)])
        print(f"message {message}: {len(sums)} sums, the last one is {sums[-1]}")


if __name__ == "__main__":
    main()
