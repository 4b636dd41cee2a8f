"""How the ranks of a group find each other.

A group of PyTorch has a store, which all of its ranks reach already. By it they tell each other on which host they are, and rank 0 tells
where all meet: at the switch of ``FANIN_SWITCH``, or at one that it runs in its own process, at a port that the kernel has chosen.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from torch.distributed import PrefixStore, Store, TCPStore

from fanin._native import Host
from fanin.errors import ConfigurationError, JobTimeoutError

#: How long a switch in this process stays for ranks that have not left, at most, in seconds.
LINGER_MAX_S = 60.0

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """Where the ranks of a group meet."""

    #: The job's name, which no other group has.
    job: str
    #: ``HOST:PORT`` of a switch that is there for all, or
    switch: str | None = None
    #: ``HOST:PORT`` of the switch in rank 0's process.
    rendezvous: str | None = None
    #: Why there is none.
    failure: str | None = None
    #: Whether all ranks are on one host.
    local: bool = False


def meet(store: Store, rank: int, size: int, timeout: timedelta) -> Place:
    """Agrees with the other ranks on a place.

    Raises:
        JobTimeoutError: ranks are missing; says which.
        ConfigurationError: rank 0 does not know an address of its own that the others can reach.
    """
    # The same store may serve several groups of the same name, one after the other.
    epoch = store.add(f"epoch/{rank}", 1)
    store = PrefixStore(f"{epoch}", store)
    store.set(f"host/{rank}", _host())
    if rank == 0:
        try:
            place = _place(store, size, timeout)
        except (ConfigurationError, JobTimeoutError) as error:
            place = Place(job="", failure=str(error))
            store.set("place", json.dumps(asdict(place)))
            raise
        store.set("place", json.dumps(asdict(place)))
        return place
    try:
        store.wait(["place"], timeout)
    except RuntimeError as error:
        text = f"rank {rank} has not heard of rank 0 within {timeout.total_seconds():g} s"
        raise JobTimeoutError(text, rank=rank, cause=0) from error
    place = Place(**json.loads(store.get("place")))
    if place.failure is not None:
        raise JobTimeoutError(f"rank 0: {place.failure}", rank=rank)
    return place


def _place(store: Store, size: int, timeout: timedelta) -> Place:
    keys = [f"host/{rank}" for rank in range(size)]
    try:
        store.wait(keys, timeout)
    except RuntimeError as error:
        missing = [rank for rank in range(size) if not store.check([keys[rank]])]
        text = f"not all ranks have come within {timeout.total_seconds():g} s: waiting for {_ranks(missing)}"
        raise JobTimeoutError(text, rank=0, cause=missing[0] if missing else None) from error
    hosts = {store.get(key) for key in keys}
    job = f"{os.environ.get('FANIN_JOB') or os.environ.get('TORCHELASTIC_RUN_ID') or 'torch'}"[:64] + f"/{uuid.uuid4().hex[:16]}"
    local = len(hosts) == 1
    if switch := os.environ.get("FANIN_SWITCH"):
        return Place(job=job, switch=switch, local=local)
    return Place(job=job, rendezvous=HOSTING.open(own_address(store, local), timeout), local=local)


def _ranks(ranks: list[int]) -> str:
    named = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank {named}{more}"


def _host() -> str:
    """What two processes have in common that reach each other by loopback: the running kernel and the namespace of its network."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def own_address(store: Store, local: bool) -> str:
    """This host's address as the other ranks reach it.

    Raises:
        ConfigurationError: all that is known is a loopback address, and there are ranks on other hosts.
    """
    if bind := os.environ.get("FANIN_BIND"):
        return bind
    if local:
        return _LOOPBACK
    address = _address_towards(store)
    if address is None or address.startswith("127."):
        raise ConfigurationError(
            f"ranks are on several hosts, but this one knows itself as {address} only: set FANIN_BIND to the address that the others reach"
        )
    return address


def _address_towards(store: Store) -> str | None:
    """The address from which the host of the store, so MASTER_ADDR, is reached."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    host, port = (store.host, store.port) if isinstance(store, TCPStore) else (socket.gethostname(), 1)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Nothing is sent: the kernel only chooses a route.
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return None


class Hosting:
    """The switches in this process: one for each address, for as long as a group of which this process is rank 0 uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, tuple[Host, int]] = {}

    def open(self, address: str, timeout: timedelta) -> str:
        """``HOST:PORT`` of the switch at this address; it is started if there is none."""
        with self._lock:
            host, users = self._hosts.get(address, (None, 0))
            if host is None:
                listen = f"[{address}]:0" if ":" in address else f"{address}:0"
                host = Host(listen, linger=min(timeout.total_seconds(), LINGER_MAX_S))
            self._hosts[address] = (host, users + 1)
            return host.address

    def close(self, place: Place) -> None:
        """A group does not need its switch any more. Where no other does, it ends when the other ranks have left."""
        with self._lock:
            address = next((key for key, (host, _) in self._hosts.items() if host.address == place.rendezvous), None)
            if address is None:
                return
            host, users = self._hosts.pop(address)
            if users > 1:
                self._hosts[address] = (host, users - 1)
                return
        # The process stays for that, but its user does not wait.
        threading.Thread(target=host.close, name="fanin-drain").start()


HOSTING = Hosting()
