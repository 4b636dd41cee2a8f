"""Tests of the PyTorch backend; ``scripts/torch_tests.py`` makes an environment for them and runs them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# Several processes share few cores: threads of PyTorch and of libraries for linear algebra would only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def switch(switch_process: tuple[str, subprocess.Popen[str]]) -> str:
    """``HOST:PORT`` of a ``fanin switch`` in another process."""
    return switch_process[0]


@pytest.fixture
def switch_process() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The same, with the process."""
    program = shutil.which("fanin")
    if program is None:
        pytest.skip("the program `fanin` is not on PATH")
    process = subprocess.Popen([program, "switch", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                yield found.group(0), process
                break
        else:
            pytest.fail(f"the switch has ended: {said}")
    finally:
        process.terminate()
        process.communicate()


#: Two leaves with a host each, and two spines.
FABRIC = """
[defaults]
rate = "1Gb/s"
buffer = "1MiB"
delay = "100us"
hello_interval = "50ms"
hello_timeout = "1s"
"""


def _free_ports(count: int) -> list[int]:
    """Ports that are free for UDP and TCP on loopback."""
    held = []
    while len(held) < count:
        udp, tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
        udp.bind(("127.0.0.1", 0))
        try:
            tcp.bind(udp.getsockname())
        except OSError:
            tcp.close()
            continue
        held.append((udp, tcp))
    ports = [udp.getsockname()[1] for udp, _ in held]
    for udp, tcp in held:
        udp.close()
        tcp.close()
    return ports


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[str]:
    """``HOST:PORT`` of the manager of a fabric of four switches, in processes of their own."""
    program = shutil.which("fanin")
    if program is None:
        pytest.skip("the program `fanin` is not on PATH")
    names = ["host0", "host1", "leaf0", "leaf1", "spine0", "spine1"]
    text = FABRIC
    for name, port in zip(names, _free_ports(len(names)), strict=True):
        level = {"leaf": "level = 1\n", "spin": "level = 2\n"}.get(name[:4], "")
        kind = "host" if name.startswith("host") else "switch"
        text += f'[[{kind}]]\nname = "{name}"\n{level}address = "127.0.0.1:{port}"\n'
    links = [("host0", "leaf0"), ("host1", "leaf1"), *[(leaf, spine) for leaf in names[2:4] for spine in names[4:]]]
    text += "".join(f'[[link]]\nends = ["{low}", "{high}"]\n' for low, high in links)
    file = tmp_path / "fabric.toml"
    file.write_text(text)
    commands = [["switch", "--fabric", str(file), "--name", name] for name in names[2:]]
    commands.append(["manager", str(file), "--listen", "127.0.0.1:0"])
    processes = [subprocess.Popen([program, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands]
    try:
        said = ""
        assert processes[-1].stdout is not None
        for line in processes[-1].stdout:
            said += line
            if found := re.search(r"ranks join at (127\.0\.0\.1:\d+)", line):
                yield found.group(1)
                break
        else:
            pytest.fail(f"the manager has ended: {said}")
    finally:
        for process in processes:
            process.kill()
            process.communicate()
