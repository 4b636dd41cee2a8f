"""How the ranks of a group find each other.

A group of PyTorch has a store, which all of its ranks reach already. By it they tell each other who they are: on which host, in which list
of ranks, with which options. The group's rank 0 looks at what each says as it comes, and tells all where they meet: at the switch of
``FANIN_SWITCH``, or at one that it runs in its own process, at a port that the kernel has chosen; or why they do not.

=====================  =================================================================================================================
``epoch/LIST/RANK``    how often this rank has come with this list: the same store may serve several groups, one after the other
``claims``             how many claims there are, and
``claim/N``            each of them, in the order in which ranks have come
``claimed/GLOBAL``     the number of the last claim of a process, by its rank in the default group
``expected/GLOBAL``    how many claims wait for what this process says as rank 0, and ``expected/GLOBAL/N`` their numbers
``told/LIST/EPOCH``    how many ranks had something to say about where the group meets: the first of them says it, and
``place/LIST/EPOCH``   that is where it meets, or why it does not
``over/LIST/EPOCH``    the group was shut down
=====================  =================================================================================================================
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import DistNetworkError, PrefixStore, Store, TCPStore

from fanin._native import Host
from fanin.errors import ConfigurationError, FaninError
from fanin.torch.errors import CollectiveError, CollectiveTimeoutError
from fanin.torch.options import fabric_of

#: How long a switch in this process stays for ranks that have not left, at most, in seconds.
LINGER_MAX_S = 60.0

#: How much later than the timeout a rank gives up that knows rank 0 to be there: rank 0 says first who is missing.
_GRACE_S = 2.0

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Member:
    """Who a rank is, and what it was told of its group."""

    rank: int
    #: The group's ranks, as they are numbered in the default group.
    ranks: tuple[int, ...]
    #: Options that must be the same at all ranks.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Why it cannot take part.
    failure: str | None = None
    #: What a switch that it runs is known by, and knows ranks by.
    tls: Mapping[str, str] = field(default_factory=dict)

    @property
    def list_name(self) -> str:
        """A name for the list of ranks."""
        return hashlib.sha256(json.dumps(self.ranks).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return _named(self.rank, self.ranks)


def _named(rank: int, ranks: tuple[int, ...]) -> str:
    known = ranks[rank]
    return f"rank {rank}" if known == rank else f"rank {rank} (rank {known} of the default group)"


@dataclass(frozen=True)
class Place:
    """Where the ranks of a group meet."""

    #: The job's name, which no other group has.
    job: str
    #: ``HOST:PORT`` of a switch that is there for all, or
    switch: str | None = None
    #: ``HOST:PORT`` of the manager of a fabric of several switches, or
    fabric: str | None = None
    #: ``HOST:PORT`` of the switch in rank 0's process.
    rendezvous: str | None = None
    #: Why there is none, and who is to blame.
    failure: str | None = None
    cause: int | None = None
    #: Whether that is since somebody did not come.
    is_late: bool = False
    #: Whether all ranks are on one host.
    local: bool = False


def _error(place: Place, me: Member, prefix: str = "") -> CollectiveError:
    kind = CollectiveTimeoutError if place.is_late else CollectiveError
    return kind(f"fanin: the group cannot be made: {prefix}{place.failure}", rank=me.rank, cause=place.cause)


@contextmanager
def _explained(me: Member, what: str) -> Iterator[None]:
    """Errors of the store become errors of the group."""
    begin = time.monotonic()
    try:
        yield
    except FaninError:
        raise
    except RuntimeError as error:
        after = f"{time.monotonic() - begin:.1f} s after {me.name} began to {what}"
        text = f"fanin: the group cannot be made: its store has failed {after}: {error}"
        raise CollectiveError(text, rank=me.rank) from error


class Meeting:
    """A group's meeting, at one of its ranks."""

    def __init__(self, store: Store, me: Member, timeout: timedelta) -> None:
        self._store = store
        self._me = me
        self._timeout = timeout
        self._begin = time.monotonic()
        self._claim = 0
        self._epoch = 0

    def come_together(self) -> Place:
        """Agrees with the other ranks on a place.

        Raises:
            CollectiveError: A rank has another list or other options, or the store has failed.
            CollectiveTimeoutError: Ranks are missing; says which.
        """
        with _explained(self._me, "meet the others"):
            self._say()
            conflict = self._differs()
            return self._lead() if self._me.rank == 0 else self._follow(conflict)

    def decline(self) -> None:
        """Tells the others why this rank cannot take part: :attr:`Member.failure`."""
        with _explained(self._me, "decline"):
            self._say()
            self._differs()
            if self._me.rank == 0:
                self._settle(Place(job="", failure=f"{self._me.name}: {self._me.failure}", cause=0))

    def end(self) -> None:
        """The group is no more: what was said for it means nothing for those to come."""
        if self._me.rank != 0:
            return
        try:
            self._store.set(f"over/{self._me.list_name}/{self._epoch}", "")
        except RuntimeError:
            # The store may have gone with rank 0, which tells nobody anything any more.
            return

    def _say(self) -> None:
        me, store = self._me, self._store
        self._epoch = store.add(f"epoch/{me.list_name}/{me.rank}", 1)
        self._claim = store.add("claims", 1)
        said = {
            "rank": me.rank,
            "ranks": me.ranks,
            "epoch": self._epoch,
            "host": _host(),
            "options": dict(me.options),
            "failure": me.failure,
        }
        store.set(f"claim/{self._claim}", json.dumps(said))
        store.set(f"claimed/{me.ranks[me.rank]}", str(self._claim))
        if me.rank != 0:
            number = store.add(f"expected/{me.ranks[0]}", 1)
            store.set(f"expected/{me.ranks[0]}/{number}", str(self._claim))

    def _place_key(self, list_name: str, epoch: int) -> str:
        return f"place/{list_name}/{epoch}"

    def _left(self) -> timedelta:
        return max(self._timeout - timedelta(seconds=time.monotonic() - self._begin), timedelta(milliseconds=1))

    def _wait(self, key: str, limit: timedelta) -> bool:
        """Whether a value is there in time. Stores tell a time that is over and a connection that is lost by texts of their own."""
        begin = time.monotonic()
        try:
            self._store.wait([key], limit)
        except DistNetworkError:
            raise
        except RuntimeError:
            if time.monotonic() - begin < 0.9 * limit.total_seconds():
                raise
            return False
        return True

    # What rank 0 does.

    def _lead(self) -> Place:
        me = self._me
        try:
            found = self._found()
        except FaninError as error:
            self._settle(Place(job="", failure=str(error), cause=me.rank))
            raise CollectiveError(f"fanin: the group cannot be made: {error}", rank=me.rank, cause=me.rank) from error
        place = self._settle(found)
        if place.failure is not None:
            HOSTING.close(found)
            raise _error(place, me)
        return place

    def _settle(self, place: Place) -> Place:
        """What holds for this group: this, or what another rank has said before."""
        return self._settle_for(self._me.list_name, self._epoch, place)

    def _settle_for(self, list_name: str, epoch: int, place: Place) -> Place:
        """All ranks of a group hear the same, whoever speaks: of two that speak at once, the first."""
        key = self._place_key(list_name, epoch)
        if self._store.add(f"told/{list_name}/{epoch}", 1) == 1:
            self._store.set(key, json.dumps(asdict(place)))
            return place
        # Whoever was first writes in this moment, or has died before it could: then somebody else must.
        if self._wait(key, timedelta(seconds=_GRACE_S)):
            return self._told(key)
        self._store.set(key, json.dumps(asdict(place)))
        return place

    def _told(self, key: str) -> Place:
        return Place(**json.loads(self._store.get(key)))

    def _found(self) -> Place:
        """Looks at all claims as they come, until all of the group are there."""
        me, hosts, number = self._me, dict[int, str](), 0
        while len(hosts) < len(me.ranks):
            number += 1
            if not self._wait(f"claim/{number}", self._left()):
                return self._missing(hosts)
            said = json.loads(self._store.get(f"claim/{number}"))
            if tuple(said["ranks"]) == me.ranks:
                if said["epoch"] == self._epoch:
                    if (wrong := self._wrong(said)) is not None:
                        return wrong
                    hosts[said["rank"]] = said["host"]
            elif (conflict := self._conflict(said)) is not None:
                return conflict
        return self._open(set(hosts.values()))

    def _wrong(self, said: Mapping[str, Any]) -> Place | None:
        """Whether a rank of this group cannot take part."""
        me, rank = self._me, said["rank"]
        if said["failure"] is not None:
            return Place(job="", failure=f"{_named(rank, me.ranks)}: {said['failure']}", cause=rank)
        if said["options"] != dict(me.options):
            theirs = f"{_named(rank, me.ranks)} has {said['options']}"
            text = f"pg_options differ: {theirs} and {me.name} {dict(me.options)}: expected the same at all ranks"
            return Place(job="", failure=text, cause=rank)
        return None

    def _conflict(self, said: Mapping[str, Any]) -> Place | None:
        """Whether a rank has come with a list that shares ranks with this one and differs, for a group that is not over."""
        me, ranks = self._me, tuple(said["ranks"])
        list_name = Member(0, ranks).list_name
        if not set(ranks) & set(me.ranks) or self._store.check([f"over/{list_name}/{said['epoch']}"]):
            return None
        theirs = ranks[said["rank"]]
        text = (
            f"rank {theirs} of the default group makes this group with the ranks {list(ranks)},"
            f" and rank {me.ranks[me.rank]} with {list(me.ranks)}: expected the same list at all ranks"
            " (ranks call new_group in the same order, also for groups that they are not in)"
        )
        cause = me.ranks.index(theirs) if theirs in me.ranks else None
        mine = me.ranks[me.rank]
        self._settle_for(list_name, said["epoch"], Place(job="", failure=text, cause=ranks.index(mine) if mine in ranks else None))
        return Place(job="", failure=text, cause=cause)

    def _missing(self, there: Mapping[int, str]) -> Place:
        missing = [rank for rank in range(len(self._me.ranks)) if rank not in there]
        return Place(job="", failure=f"{self._waiting_for(missing)}", cause=missing[0], is_late=True)

    def _waiting_for(self, missing: list[int]) -> str:
        named = ", ".join(_named(rank, self._me.ranks) for rank in missing[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        return f"not all ranks have come within {self._timeout.total_seconds():g} s: waiting for {named}{more}"

    def _open(self, hosts: set[str]) -> Place:
        prefix = os.environ.get("FANIN_JOB") or os.environ.get("TORCHELASTIC_RUN_ID") or "torch"
        job = f"{prefix[:64]}/{uuid.uuid4().hex[:16]}"
        local = len(hosts) == 1
        if fabric := fabric_of(self._me.options):
            return Place(job=job, fabric=fabric, local=local)
        if switch := self._me.options.get("switch") or os.environ.get("FANIN_SWITCH"):
            return Place(job=job, switch=switch, local=local)
        return Place(job=job, rendezvous=HOSTING.open(own_address(self._store, local), self._timeout, self._me.tls), local=local)

    # What all do, and what the others do.

    def _others(self) -> Iterator[str]:
        """The last claim of this list's rank 0, and the claims of those that take this rank for theirs."""
        if self._store.check([first := f"claimed/{self._me.ranks[0]}"]):
            yield self._store.get(first).decode()
        mine = f"expected/{self._me.ranks[self._me.rank]}"
        for number in range(1, self._store.add(mine, 0) + 1):
            yield self._store.get(f"{mine}/{number}").decode()

    def _differs(self) -> Place | None:
        """Whoever comes later of two that are in different lists finds what the other has said, and tells it.

        All that wait for this rank's word must hear it, also where there is a first conflict already: nobody else tells them.
        """
        conflicts = []
        for number in self._others():
            said = json.loads(self._store.get(f"claim/{number}"))
            if tuple(said["ranks"]) != self._me.ranks and (conflict := self._conflict(said)) is not None:
                conflicts.append(conflict)
        return conflicts[0] if conflicts else None

    def _follow(self, conflict: Place | None) -> Place:
        # Where the others of this list have met before there was a conflict, this rank is one of them.
        place = self._heard() if conflict is None else self._settle(conflict)
        if place.failure is not None:
            raise _error(place, self._me)
        return place

    def _heard(self) -> Place:
        me, key = self._me, self._place_key(self._me.list_name, self._epoch)
        is_led = f"claimed/{me.ranks[0]}"
        if self._wait(key, self._left()) or (self._store.check([is_led]) and self._wait(key, timedelta(seconds=_GRACE_S))):
            return self._told(key)
        missing = [rank for rank, known in enumerate(me.ranks) if not self._store.check([f"claimed/{known}"])] or [0]
        return Place(job="", failure=self._waiting_for(missing), cause=missing[0], is_late=True)


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
        self._hosts: dict[tuple[str, ...], tuple[Host, int]] = {}

    def open(self, address: str, timeout: timedelta, tls: Mapping[str, str]) -> str:
        """``HOST:PORT`` of the switch at this address, which is known by these settings; it is started if there is none."""
        key = (address, *(f"{name}={value}" for name, value in sorted(tls.items())))
        with self._lock:
            host, users = self._hosts.get(key, (None, 0))
            if host is None:
                listen = f"[{address}]:0" if ":" in address else f"{address}:0"
                host = Host(listen, linger=min(timeout.total_seconds(), LINGER_MAX_S), **tls)
            self._hosts[key] = (host, users + 1)
            return host.address

    def close(self, place: Place) -> None:
        """A group does not need its switch any more. Where no other does, it ends when the other ranks have left."""
        with self._lock:
            found = next((key for key, (host, _) in self._hosts.items() if host.address == place.rendezvous), None)
            if found is None:
                return
            host, users = self._hosts.pop(found)
            if users > 1:
                self._hosts[found] = (host, users - 1)
                return
        # The process stays for that, but its user does not wait.
        threading.Thread(target=host.close, name="fanin-drain").start()


HOSTING = Hosting()
