"""Workers in network namespaces of their own, each joined to a bridge by a link with a rate. Python's standard library only.

The bridge has a namespace too, so that nothing of the host's network is touched, and removing the namespaces removes everything.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from types import TracebackType

from processes import uninterrupted

PREFIX = "fanin-bench-"
#: The interface that every namespace has.
INTERFACE = "eth0"
#: Every namespace is in this subnet; workers count up from its first address.
SUBNET = "10.231.0"
SWITCH_HOST = 250


class NoNetwork(Exception):
    """A command of the set-up failed."""


def obstacle() -> str | None:
    """Why namespaces cannot be made here, or None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} of the package iproute2 is not installed"
    try:
        with Star(1, rate="1gbit"):
            return None
    except NoNetwork as error:
        return str(error)


def must(command: Sequence[str]) -> str:
    """Runs a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoNetwork(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def stale(names: Sequence[str], is_alive: Callable[[int], bool]) -> list[str]:
    """Those of `names` that a process has made that is gone."""
    found = [(name, re.fullmatch(rf"{PREFIX}(\d+)-.*", name)) for name in names]
    return [name for name, match in found if match and not is_alive(int(match[1]))]


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    return os.path.exists(f"/proc/{pid}")


class Star:
    """Namespaces of `workers` workers, a switch and a bridge. A worker's link has `rate` in either direction, the switch's has no limit."""

    #: A super-packet of segmentation offload passes whole; the queue holds more than a socket's send buffer.
    SHAPER = ("burst", "128kb", "limit", "4mb")

    def __init__(self, workers: int, rate: str, joined: bool = True) -> None:
        """`joined` false: nothing joins the workers' links; their other ends are `ports` in the bridge's namespace, for a switch there."""
        self.workers = workers
        self.rate = rate
        self.joined = joined
        self._made: list[str] = []

    def name(self, who: str) -> str:
        """The namespace of `bridge`, `switch` or a worker's number; no other process uses it."""
        return f"{PREFIX}{os.getpid()}-{who}"

    def worker_address(self, worker: int) -> str:
        """A worker's IP address."""
        return f"{SUBNET}.{worker + 1}"

    @property
    def switch_address(self) -> str:
        """The switch's IP address."""
        return f"{SUBNET}.{SWITCH_HOST}"

    def inside(self, who: str | int) -> list[str]:
        """What to put before a command so that it runs there."""
        return ["ip", "netns", "exec", self.name(str(who))]

    @property
    def ports(self) -> list[str]:
        """The interfaces in the bridge's namespace, in the order of workers."""
        return [f"p{worker}" for worker in range(self.workers)]

    def sent_to(self, worker: int) -> int:
        """Bytes that have come to a worker's interface since it was made."""
        return int(must([*self.inside(worker), "cat", f"/sys/class/net/{INTERFACE}/statistics/rx_bytes"]))

    def __enter__(self) -> Star:
        try:
            self._sweep()
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._remove()

    def _sweep(self) -> None:
        """Removes what a run has left behind that was killed: its namespaces, and the processes in them, which nobody else has started."""
        names = [line.split()[0] for line in must(["ip", "netns", "list"]).splitlines() if line.strip()]
        for name in stale(names, is_alive):
            for pid in must(["ip", "netns", "pids", name]).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)
            must(["ip", "netns", "del", name])

    def _build(self) -> None:
        bridge = self._namespace("bridge")
        if self.joined:
            must(["ip", "-n", bridge, "link", "add", "br0", "type", "bridge"])
            must(["ip", "-n", bridge, "link", "set", "br0", "up"])
            self._join("switch", "ps", self.switch_address)
        for worker, port in enumerate(self.ports):
            self._join(str(worker), port, self.worker_address(worker))
            self._limit(self.name(str(worker)), INTERFACE)
            self._limit(bridge, port)

    def _namespace(self, who: str) -> str:
        name = self.name(who)
        # Noted first: removing one that has not been made does no harm.
        self._made.append(name)
        must(["ip", "netns", "add", name])
        must(["ip", "-n", name, "link", "set", "lo", "up"])
        return name

    def _join(self, who: str, port: str, address: str) -> None:
        """A new namespace whose interface is plugged into the bridge."""
        bridge, name = self.name("bridge"), self._namespace(who)
        must(["ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", name])
        master = ["master", "br0"] if self.joined else []
        must(["ip", "-n", bridge, "link", "set", port, *master, "up"])
        must(["ip", "-n", name, "address", "add", f"{address}/24", "dev", INTERFACE])
        must(["ip", "-n", name, "link", "set", INTERFACE, "up"])

    def _limit(self, name: str, device: str) -> None:
        must(["tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate", self.rate, *self.SHAPER])

    def _remove(self) -> None:
        with uninterrupted():
            for name in reversed(self._made):
                # The rest goes even if one does not.
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            self._made.clear()
