#!/usr/bin/env python3
"""Sends garbage to a UDP port of this host at a steady rate, until it is told to end by SIGTERM; then prints what it has sent, as JSON.

Usage: garbage.py IPV4 PORT PACKETS_PER_SECOND [altered [SINK]]

A stranger's random bytes, from a socket of its own; and with root, in the name of whoever else sends to the port, packets that were on the
way there: cut short, with a bit of their header turned over, or once more as they are. With `altered` also with another payload, a later number and the right checksum: only where
packets have keys, since sums are wrong without. With SINK all of it goes to that port of this host instead, which costs the sender as much. No bits are turned over where only the checksum of
UDP stands between them and a wrong sum: whoever writes in a member's name may contribute what it likes. Python's standard library only.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import struct
import sys
import time
import zlib
from collections.abc import Iterator

#: Headers of IPv4 and UDP.
IP_BYTES, UDP_BYTES = 20, 8
#: What Linux puts before a packet that is listened to (`virtio_net_hdr`), with the length of the datagrams in a run of several.
OFFLOAD_BYTES = 10
PACKET_VNET_HDR, ETH_P_IP, ETHERNET_BYTES = 15, 0x0800, 14
#: Bytes of the hop header where a wrong bit shows: magic and version, flags, job.
TELLING = (0, 2, 4, 5)
#: How many real packets are taken as examples.
EXAMPLES = 64
#: How often packets leave, in seconds: a few at once.
TICK_S = 0.002


def datagrams_of(frame: bytes, port: int) -> Iterator[tuple[int, bytes]]:
    """The source port and the first datagram of what was seen on loopback, if it goes to this port."""
    if len(frame) < OFFLOAD_BYTES + ETHERNET_BYTES + IP_BYTES + UDP_BYTES:
        return
    (segment_bytes,) = struct.unpack_from("=H", frame, 4)
    packet = frame[OFFLOAD_BYTES + ETHERNET_BYTES :]
    if packet[0] != 0x45 or packet[9] != socket.IPPROTO_UDP:
        return
    source, destination = struct.unpack_from("!HH", packet, IP_BYTES)
    payload = packet[IP_BYTES + UDP_BYTES :]
    if destination == port:
        yield source, payload[:segment_bytes] if segment_bytes else payload


def examples(port: int, is_over: list[bool]) -> list[tuple[int, bytes]]:
    """Packets on their way to the port; waits for them."""
    found: list[tuple[int, bytes]] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP)) as ear:
        ear.setsockopt(263, PACKET_VNET_HDR, 1)  # SOL_PACKET
        ear.bind(("lo", ETH_P_IP))
        ear.settimeout(0.1)
        while len(found) < EXAMPLES and not is_over:
            try:
                frame = ear.recv(1 << 17)
            except TimeoutError:
                continue
            found.extend(datagrams_of(frame, port))
    return found


def in_the_name_of(source: int, address: str, port: int, payload: bytes) -> bytes:
    """A datagram with all its headers. Without a checksum, which IPv4 allows."""
    total = IP_BYTES + UDP_BYTES + len(payload)
    here = socket.inet_aton(address)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 64, socket.IPPROTO_UDP, 0, here, here)
    return ip + struct.pack("!HHHH", source, port, UDP_BYTES + len(payload), 0) + payload


def with_a_wrong_bit(payload: bytes, dice: random.Random) -> bytes:
    """The same with a bit of its header turned over. Of the flags only bits that mean nothing."""
    at = dice.choice(TELLING)
    damaged = bytearray(payload)
    damaged[at] ^= 1 << (dice.randrange(4, 8) if at == 2 else dice.randrange(8))
    return bytes(damaged)


def altered(payload: bytes, dice: random.Random) -> bytes:
    """The same with another payload, one of the next numbers, and the checksum of packets without keys."""
    header = 20 if payload[2] & 4 else 32
    if len(payload) < header + 64:
        return payload
    other = bytearray(payload)
    (number,) = struct.unpack_from("<I", other, 12)
    struct.pack_into("<I", other, 12, (number + dice.randrange(1, 1_000)) % 2**32)
    for at in range(header + 24, len(other)):
        other[at] ^= 0x55
    check = zlib.crc32(other[20:header], zlib.crc32(other[:16], zlib.crc32(other[header:])))
    struct.pack_into("<I", other, 16, check)
    return bytes(other)


def mixture(address: str, port: int, known: list[tuple[int, bytes]], alters: bool = False) -> dict[str, list[bytes]]:
    """By kind, what is sent; what goes out in another's name has its headers already."""
    dice = random.Random(1)
    kinds: dict[str, list[bytes]] = {"random": [dice.randbytes(dice.randrange(1, 1_400)) for _ in range(64)]}
    for source, payload in known:
        cut = payload[: dice.randrange(1, max(2, len(payload)))]
        wrongs = [("truncated", cut), ("bit flipped", with_a_wrong_bit(payload, dice)), ("repeated", payload)]
        for kind, wrong in wrongs + ([("altered", altered(payload, dice))] if alters else []):
            kinds.setdefault(kind, []).append(in_the_name_of(source, address, port, wrong))
    return kinds


def pour(address: str, port: int, rate: float, is_over: list[bool], alters: bool = False, sink: int | None = None) -> dict:
    """Sends until it is over."""
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.setblocking(False)
    root = os.geteuid() == 0
    forger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) if root else None
    known = examples(port, is_over) if root else []
    port = sink or port
    kinds = mixture(address, port, known, alters)
    rounds = itertools.zip_longest(*kinds.values())
    order = itertools.cycle([(kind, packet) for packets in rounds for kind, packet in zip(kinds, packets, strict=True) if packet])
    sent, begin = dict.fromkeys(kinds, 0), time.monotonic()
    total = 0
    while not is_over:
        due = int((time.monotonic() - begin) * rate)
        for kind, packet in itertools.islice(order, max(0, min(due - total, 1_000))):
            total += 1
            try:
                if kind == "random" or forger is None:
                    stranger.sendto(packet, (address, port))
                else:
                    forger.sendto(packet, (address, port))
            except OSError:
                # A full buffer, or nobody is there (any more).
                continue
            sent[kind] += 1
        time.sleep(TICK_S)
    return {"sent": sent, "seconds": time.monotonic() - begin}


def main(arguments: list[str]) -> int:
    """The program; returns its exit code."""
    if not 3 <= len(arguments) <= 5 or arguments[3:4] not in ([], ["altered"]):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    address, port, rate = arguments[0], int(arguments[1]), float(arguments[2])
    is_over: list[bool] = []
    signal.signal(signal.SIGTERM, lambda _number, _frame: is_over.append(True))
    sink = int(arguments[4]) if len(arguments) == 5 else None
    print(json.dumps(pour(address, port, rate, is_over, len(arguments) > 3, sink)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
