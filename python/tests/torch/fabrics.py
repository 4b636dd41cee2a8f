"""Fabrics of two leaves and two spines, and programs that train over them as ``torchrun`` starts them: a process for each switch, the
manager and each host, in network namespaces of their own or on loopback."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import namespaces  # noqa: E402
from processes import Crew  # noqa: E402

LEAVES = ("leaf0", "leaf1")
SPINES = ("spine0", "spine1")
DEFAULTS = """
[defaults]
rate = "1Gb/s"
buffer = "1MiB"
delay = "100us"
hello_interval = "50ms"
hello_timeout = "1s"
"""
#: How long processes may take, in seconds; it only bounds what would hang.
PATIENCE_S = 300.0
#: Where hosts of namespaces of their own meet, and where a manager there listens.
PORT = 29500
#: What ranks of one fabric's host have in their environment.
ENVIRON = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def free_ports(count: int) -> list[int]:
    """Ports that are free for UDP and TCP on loopback."""
    held = []
    while len(held) < count:
        udp, tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
        udp.bind(("127.0.0.1", 0))
        try:
            tcp.bind(udp.getsockname())
        except OSError:
            udp.close()
            tcp.close()
            continue
        held.append((udp, tcp))
    ports = [udp.getsockname()[1] for udp, _ in held]
    for udp, tcp in held:
        udp.close()
        tcp.close()
    return ports


class Fabric:
    """Two leaves, two spines and their manager while a ``with`` block lasts; half of the hosts are at each leaf."""

    def __init__(self, program: str, hosts: int, *, loss: float = 0.0, in_namespaces: bool = False) -> None:
        """``loss``: the share of packets that each switch throws away instead of sending them, hellos among them."""
        self.program = program
        self.hosts = [f"host{number}" for number in range(hosts)]
        self.loss = loss
        self.nodes = [*self.hosts, *LEAVES, *SPINES]
        self._in_namespaces = in_namespaces
        self._star: namespaces.Star | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = contextlib.ExitStack()
        #: ``HOST:PORT`` of the manager.
        self.manager = ""

    def __enter__(self) -> Fabric:
        with contextlib.ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fanin-fabric-")))
            if self._in_namespaces:
                self._star = stack.enter_context(namespaces.Star(len(self.nodes) + 1, rate="1gbit"))
            self.crew = stack.enter_context(Crew())
            self._begin()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def _begin(self) -> None:
        ports = [PORT] * (len(self.nodes) + 1) if self._star else free_ports(len(self.nodes) + 1)
        self._addresses = {name: f"{self._ip(name)}:{port}" for name, port in zip([*self.nodes, "manager"], ports, strict=True)}
        text, half = DEFAULTS, len(self.hosts) // 2
        for name in self.nodes:
            level = {"leaf": "level = 1\n", "spin": "level = 2\n"}.get(name[:4], "")
            kind = "switch" if level else "host"
            text += f'[[{kind}]]\nname = "{name}"\n{level}address = "{self._addresses[name]}"\n'
        links = [(host, LEAVES[number // half]) for number, host in enumerate(self.hosts)]
        links += [(leaf, spine) for leaf in LEAVES for spine in SPINES]
        text += "".join(f'[[link]]\nends = ["{low}", "{high}"]\n' for low, high in links)
        self._file = self._folder / "fabric.toml"
        self._file.write_text(text)
        for number, name in enumerate([*LEAVES, *SPINES]):
            self._start(name, number)
        self.manager = self._addresses["manager"]
        manager = self.crew.start([*self._inside("manager"), self.program, "manager", str(self._file), "--listen", self.manager, "--open"])
        self.crew.wait_until_it_says(manager, "ranks join at", time.monotonic() + PATIENCE_S)

    def _ip(self, name: str) -> str:
        return self._star.worker_address(self._number(name)) if self._star else "127.0.0.1"

    def _number(self, name: str) -> int:
        return [*self.nodes, "manager"].index(name)

    def _inside(self, name: str) -> list[str]:
        return self._star.inside(self._number(name)) if self._star else []

    def _start(self, name: str, seed: int) -> None:
        command = [*self._inside(name), self.program, "switch", "--fabric", str(self._file), "--name", name]
        command += ["--loss", str(self.loss), "--fault-seed", str(seed)]
        self._running[name] = self.crew.start(command)
        self.crew.wait_until_it_says(self._running[name], f"{name} at", time.monotonic() + PATIENCE_S)

    def kill(self, name: str) -> None:
        """Kills a switch, which has no time to tell anybody."""
        self._running[name].kill()
        self._running[name].wait()

    def restart(self, name: str) -> None:
        """Kills a switch, and starts it again."""
        self.kill(name)
        self._start(name, 100)

    def torchrun(self, ranks_per_host: int, *arguments: str, environ: Mapping[str, str] | None = None) -> Training:
        """A program at all hosts."""
        place = f"{self._ip(self.hosts[0])}:{PORT}" if self._star else f"127.0.0.1:{free_ports(1)[0]}"
        processes = []
        for number, name in enumerate(self.hosts):
            command = [*self._inside(name), sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(self.hosts))]
            command += ["--nproc-per-node", str(ranks_per_host), "--node-rank", str(number), "--rdzv-backend", "static"]
            command += ["--rdzv-endpoint", place, *arguments]
            given = {**ENVIRON, "FANIN_FABRIC": self.manager, **(environ or {})}
            # Where hosts have addresses of their own, processes find out by themselves which one they are on.
            if self._star is None:
                given["FANIN_FABRIC_HOST"] = name
            processes.append(self.crew.start(command, given))
        return Training(self.crew, processes)


class Training:
    """A program that runs at all hosts of a fabric."""

    def __init__(self, crew: Crew, processes: list[subprocess.Popen[bytes]]) -> None:
        self._crew = crew
        self._processes = processes
        self._deadline = time.monotonic() + PATIENCE_S

    def until(self, words: str) -> None:
        """Waits until the first host has said this."""
        self._crew.wait_until_it_says(self._processes[0], words, self._deadline)

    def has_said(self, words: str) -> bool:
        """Whether the first host has said this already."""
        return self._crew.has_said(self._processes[0], words)

    def said(self) -> str:
        """What all hosts have said, once all have ended well."""
        for process in self._processes:
            self._crew.finish(process, self._deadline)
        return "\n".join(self._crew.words(process) for process in self._processes)


def alone(ranks: int, *arguments: str) -> str:
    """What a program says that does without a fabric."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", "127.0.0.1:0", *arguments]
    # Processes of gloo abort now and then after their last line: their exit code is not ours to judge.
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ENVIRON}, timeout=PATIENCE_S, check=False)
    return f"{done.stdout}\n{done.stderr}"


#: The example programs, with the arguments by which their sums are exact in any order: parameters have the same bits by any way.
PROGRAMS: dict[str, list[str]] = {
    "ddp": [str(ROOT / "examples" / "train_ddp.py"), "--exact", "--epochs", "3"],
    "topk": [str(ROOT / "examples" / "train_ddp.py"), "--exact", "--epochs", "3", "--topk", "0.05"],
    "fsdp": [str(ROOT / "examples" / "train_fsdp.py"), "--steps", "40"],
}
#: What a program says once it is under way, and has more than half of its way to go.
UNDER_WAY = {"ddp": "epoch 1:", "topk": "epoch 1:", "fsdp": "step 10:"}
#: What becomes of switches then.
TROUBLES = ("none", "spine killed", "leaf restarted", "spine restarted")


@dataclass(frozen=True)
class Case:
    """A program by a system, and what goes wrong meanwhile."""

    program: str
    system: str
    hosts: int = 2
    ranks_per_host: int = 2
    loss: float = 0.01
    trouble: str = "none"

    def __str__(self) -> str:
        lossy = f", {self.loss:.0%} lost" if self.loss else ""
        return f"{self.program} by {self.system}, {self.hosts} hosts of {self.ranks_per_host}, {self.trouble}{lossy}"


def result(said: str) -> str:
    """The line in which an example says how it went."""
    found = re.search(r".*the same parameters on \d+ ranks: \w+", said)
    assert found is not None, said
    return found[0]


@functools.cache
def by_gloo(program: str, ranks: int) -> str:
    """What a program comes to with gloo."""
    return result(alone(ranks, *PROGRAMS[program], "--backend", "gloo"))


def trains(case: Case) -> str:
    """Runs a case, whose parameters must be gloo's, bit by bit; returns what all hosts have said."""
    fanin = shutil.which("fanin")
    assert fanin is not None, "the program `fanin` is not on PATH"
    expected = by_gloo(case.program, case.hosts * case.ranks_per_host)
    environ = {"FANIN_SYSTEM": case.system}
    if case.program == "topk" and case.system == "flare":
        environ["FANIN_SPARSE"] = "switch"
    in_namespaces = namespaces.obstacle() is None
    with Fabric(fanin, case.hosts, loss=case.loss, in_namespaces=in_namespaces) as fabric:
        training = fabric.torchrun(case.ranks_per_host, *PROGRAMS[case.program], environ=environ)
        if case.trouble != "none":
            training.until(UNDER_WAY[case.program])
            assert not training.has_said("the same parameters"), "it has ended before anything has happened"
            switch = LEAVES[0] if case.trouble.startswith("leaf") else SPINES[0]
            if case.trouble.endswith("killed"):
                fabric.kill(switch)
            else:
                fabric.restart(switch)
        said = training.said()
    assert result(said) == expected, said
    # A static tree ends with its spine, as Canary's do not: hosts go on, and say so.
    is_by_hosts = case.trouble == "spine killed" and case.system != "canary" and "switches that do not answer: spine0" in said
    assert is_by_hosts or f"{case.system} over the fabric" in said, said
    if case.program == "topk" and case.trouble == "none":
        assert "sparse gradients by switch" in said, said
    return said
