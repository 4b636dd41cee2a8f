"""The example program and the ones of ``docs/pytorch.md``, as users run them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "train_ddp.py"
DOCUMENT = ROOT / "docs" / "pytorch.md"
EPOCHS = "6"


def torchrun(*arguments: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> subprocess.Popen[str]:
    """A program on two processes, in a folder."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", *arguments]
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **(environ or {})}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=given, cwd=folder)


def result(said: str) -> str:
    """The line in which the example says how it went."""
    found = re.search(r"accuracy (0\.\d+), the same parameters on 2 ranks: \w+", said)
    assert found is not None, said
    assert float(found[1]) > 0.9, said
    return found[0]


def outcome(process: subprocess.Popen[str]) -> str:
    """That line of a run that has ended well."""
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return result(said)


@pytest.fixture(scope="module")
def by_gloo() -> str:
    """What the example comes to with gloo, whose processes abort now and then after their last line ("terminate called without an active
    exception"): its exit code is not ours to judge."""
    said, _ = torchrun(str(EXAMPLE), "--backend", "gloo", "--epochs", EPOCHS).communicate()
    return result(said)


def test_the_same_as_with_gloo(by_gloo: str) -> None:
    """The same accuracy, and for two ranks the same bits."""
    assert outcome(torchrun(str(EXAMPLE), "--backend", "fanin", "--epochs", EPOCHS)) == by_gloo


def test_over_a_switch(by_gloo: str, switch: str) -> None:
    """Sums are computed by ``fanin switch`` in another process."""
    process = torchrun(str(EXAMPLE), "--backend", "fanin", "--epochs", EPOCHS, environ={"FANIN_SWITCH": switch, "FANIN_TRANSPORT": "udp"})
    assert outcome(process) == by_gloo


def test_the_switch_is_killed(by_gloo: str, switch_process: tuple[str, subprocess.Popen[str]]) -> None:
    """After the second epoch: hosts go on by themselves, to the same parameters."""
    switch, its_process = switch_process
    process = torchrun(str(EXAMPLE), "--backend", "fanin", "--epochs", EPOCHS, environ={"FANIN_SWITCH": switch, "FANIN_TRANSPORT": "udp"})
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("epoch 2"):
            its_process.kill()
    said = "".join(lines)
    assert process.wait() == 0, said
    assert result(said) == by_gloo
    assert "goes on by hosts alone, since the switch at" in said, said


@pytest.mark.parametrize("system", ["canary", "rina"])
def test_over_a_fabric(by_gloo: str, fabric: str, system: str) -> None:
    """Sums are computed by two leaves and two spines, each a process of its own."""
    environ = {"FANIN_FABRIC": fabric, "FANIN_SYSTEM": system}
    assert outcome(torchrun(str(EXAMPLE), "--backend", "fanin", "--epochs", EPOCHS, environ=environ)) == by_gloo


def test_several_ranks_on_each_host_of_a_fabric(fabric: str) -> None:
    """Two hosts with two ranks each: these sum in shared memory, and one of them goes over the fabric.

    Sums in another order have other bits than gloo's, so that what can be said is that it learns, and that all four ranks have the same.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    hosts = []
    for number, name in enumerate(["host0", "host1"]):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(number)]
        command += ["--rdzv-backend", "static", "--rdzv-endpoint", place, str(EXAMPLE), "--backend", "fanin", "--epochs", EPOCHS]
        environ = {"FANIN_FABRIC": fabric, "FANIN_FABRIC_HOST": name, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        hosts.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environ}))
    said = [host.communicate()[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], "".join(said)
    found = re.search(r"accuracy (0\.\d+), the same parameters on 4 ranks: \w+", "".join(said))
    assert found is not None and float(found[1]) > 0.9, "".join(said)


def test_the_largest_gradients_only() -> None:
    """A fiftieth of them is enough for this network; ranks have the same parameters all the same."""
    outcome(torchrun(str(EXAMPLE), "--topk", "0.02", "--epochs", EPOCHS))


def test_what_was_not_sent_is_in_the_checkpoint(tmp_path: Path) -> None:
    """A run in two parts: the second one goes on with what both ranks have kept."""
    part = [str(EXAMPLE), "--topk", "0.02", "--checkpoint", str(tmp_path / "state.pt"), "--epochs"]
    first, _ = torchrun(*part, "3").communicate()
    assert "epoch 3:" in first, first
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert [unsent["steps"] > 0 and all(kept.any() for kept in unsent["kept"].values()) for unsent in state["unsent"]] == [True, True]
    process = torchrun(*part, EPOCHS)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "from epoch 3" in said, said
    result(said)


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_and_resumed(by_gloo: str, tmp_path: Path, victim: int) -> None:
    """A process is killed in the middle; torchrun starts all of them again, which go on from the checkpoint."""
    process = torchrun(
        "--max-restarts", "1", str(EXAMPLE), "--backend", "fanin", "--epochs", EPOCHS, "--checkpoint", str(tmp_path / "state.pt")
    )
    assert process.stdout is not None
    said, identity = "", 0
    for line in process.stdout:
        said += line
        if found := re.search(rf"rank {victim} of 2: process (\d+), from epoch 0", line):
            identity = int(found[1])
        if line.startswith("epoch 2:") and identity:
            os.kill(identity, signal.SIGKILL)
            break
    else:
        pytest.fail(said)
    rest, _ = process.communicate()
    assert process.returncode == 0, said + rest
    resumed = [int(epoch) for epoch in re.findall(r"rank \d of 2: process \d+, from epoch (\d+)", rest)]
    assert len(resumed) == 2 and resumed[0] == resumed[1] >= 2, rest
    assert by_gloo in rest, rest


def programs() -> list[str]:
    """The Python programs of the document."""
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.mark.parametrize("index", range(len(programs())))
def test_the_document(index: int, tmp_path: Path) -> None:
    """Its programs run, on two processes."""
    path = tmp_path / "program.py"
    path.write_text(programs()[index])
    process = torchrun(str(path), folder=tmp_path)
    said, _ = process.communicate()
    assert process.returncode == 0, said
