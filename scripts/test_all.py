#!/usr/bin/env python3
"""Runs the checks that need root or large installs; what this machine cannot do is skipped by name, with the reason.

Usage: test_all.py [--list] [--jobs N] [NAME ...]

With `--jobs 2` two checks run at the same time, but for measurements: most of them wait more than they compute. What a check prints then
comes when it is over. Exits with 1 if a check fails. Python's standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import clean_install
import dpdk
import hops
import mpi_tests
import namespaces
import ns3
import p4
import packages
import rdma
import report_tests
import torch_tests

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Check:
    """A check that not every machine can run."""

    name: str
    #: Why it cannot run here, or None if it can. May install what it needs.
    obstacle: Callable[[], str | None]
    command: Sequence[str]
    #: It measures, so nothing runs beside it.
    alone: bool = False


def needs_root() -> str | None:
    """The obstacle of checks that make network namespaces or raw sockets."""
    return None if os.geteuid() == 0 else "it needs root"


def needs_traces() -> str | None:
    """The obstacle of tests that read public traces, which are no part of the repository."""
    return None if os.environ.get("FANIN_TRACES") else "FANIN_TRACES names no folder that holds the public traces"


def has_kernel_compiler() -> bool:
    """Whether programs for the kernel can be compiled and loaded here."""
    if any(shutil.which(name) is None for name in ("clang", "ip", "tc", "pkg-config")):
        return False
    if not any((Path(folder) / "bpf" / "bpf_helpers.h").exists() for folder in ("/usr/include", "/usr/local/include")):
        return False
    return subprocess.run(["pkg-config", "--exists", "libelf", "zlib"], capture_output=True, check=False).returncode == 0


def needs_kernel_programs() -> str | None:
    """The obstacle of programs in the kernel: that it makes no map for this user, as in many containers."""
    number = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
    if number is None:
        return f"nobody has tried it on {platform.machine()}"
    # BPF_MAP_CREATE of an array (2) of one value: type, bytes of a key, bytes of a value, how many.
    attributes = (ctypes.c_uint32 * 32)(2, 4, 4, 1)
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(number, 0, ctypes.byref(attributes), ctypes.sizeof(attributes))
    if descriptor < 0:
        return f"the kernel makes no BPF map for this user: {os.strerror(ctypes.get_errno())}"
    os.close(descriptor)
    return None


def needs_xdp() -> str | None:
    """The obstacle of the switch in the kernel: root, and what compiles programs for the kernel, which is installed where that can be."""
    reason = needs_root() or needs_kernel_programs()
    return reason or packages.missing(["clang", "iproute2", "libbpf-dev", "libelf-dev", "pkg-config", "zlib1g-dev"], has_kernel_compiler)


def needs_miri() -> str | None:
    """The obstacle of what runs in Miri, which comes with nightly toolchains only."""
    found = subprocess.run(["cargo", "+nightly", "miri", "--version"], capture_output=True, check=False)
    return None if found.returncode == 0 else "it needs Miri: `rustup component add miri rust-src --toolchain nightly`"


def needs_sanitizer() -> str | None:
    """The obstacle of what runs with AddressSanitizer, which comes with nightly toolchains only, and not for every machine."""
    found = subprocess.run(["rustc", "+nightly", "--print", "target-libdir"], capture_output=True, text=True, check=False)
    if found.returncode == 0 and any(Path(found.stdout.strip()).glob("*asan*")):
        return None
    return "it needs a nightly toolchain with AddressSanitizer: `rustup toolchain install nightly`"


def anywhere() -> str | None:
    """No obstacle: what cannot be measured is skipped by the measurement itself, with its reason."""
    return None


#: Tests of the crate that has `unsafe` with AddressSanitizer. A target is named so that build scripts go without it.
ADDRESSES = "cargo +nightly test --locked -p fanin-net --lib --tests --target $(rustc -vV | sed -n 's/host: //p') --target-dir target/asan"

#: The smallest form of the measurements of collectives, with the program that the tests have built: what comes out is not looked at.
MEASURE_ONCE = f"cargo build --locked -p fanin && FANIN_PROFILE=dev {sys.executable} scripts/bench_collectives.py --rounds 1 small garbage links4"

#: Checks with the program that the tests have built.
BUILT = "cargo build --locked -p fanin && "

#: Of those that CI runs, two at a time, the longest come first.
CHECKS = [
    # Tests that a plain `cargo test` leaves out carry #[ignore = "needs ..."]; those that take minutes are for `make check-models` and `make check-verdicts`.
    Check("traces", needs_traces, ["cargo", "test", "--locked", "-p", "fanin-workload", "--test", "real_traces", "--", "--ignored"]),
    Check("privileged-tests", needs_root, ["cargo", "test", "--locked", "--workspace", "--lib", "--bins", "--tests", "--", "--ignored", "--nocapture", "--skip", "minutes_of", "--skip", "public_traces"]),
    # Every access to shared memory, and copies past the caches: races, bounds, aliasing. Clocks are the machine's, or nothing that waits would go on.
    Check("miri", needs_miri, ["env", "MIRIFLAGS=-Zmiri-disable-isolation", "cargo", "+nightly", "miri", "test", "--locked", "--target-dir", "target/miri", "-p", "fanin-net", "--lib", "--", "shm", "stream"]),
    # The switch in the kernel: its packets are the state machine's, and jobs over links between namespaces are exact.
    Check("xdp-oracle", needs_xdp, ["cargo", "test", "--locked", "-p", "fanin-xdp", "--features", "kernel", "--", "--ignored", "--nocapture", "--skip", "minutes_of"]),
    Check("xdp", needs_xdp, ["sh", "-ec", f"cargo build --locked -p fanin --features xdp --target-dir target/xdp && cargo build --locked -p fanin-daemon --example rank --target-dir target/xdp && FANIN_PROGRAM=target/xdp/debug/fanin {sys.executable} scripts/xdp.py check"]),
    # The switches on DPDK's software pipeline: their packets are the state machines'.
    Check("dpdk", dpdk.obstacle, ["sh", "-ec", f"cargo build --locked -p fanin-p4 && {sys.executable} scripts/dpdk.py"]),
    # The same tests where Miri cannot look: real mappings, sockets, stores past the caches.
    Check("address-sanitizer", needs_sanitizer, ["env", "RUSTFLAGS=-Zsanitizer=address", "sh", "-ec", ADDRESSES]),
    # The site, with its links, and the examples that no other test runs; its builder comes from PyPI.
    Check("docs", anywhere, ["sh", "-ec", f"{BUILT}FANIN=target/debug/fanin {sys.executable} scripts/docs.py"]),
    # Every order of accesses to what threads and processes share that the memory model allows.
    Check("loom", anywhere, ["make", "loom"]),
    # Before the measurements, which use its PyTorch.
    Check("torch", torch_tests.obstacle, [sys.executable, "scripts/torch_tests.py"]),
    # A wheel of its own, with the simulator as fast as users have it, and PyTorch.
    Check("clean-install", clean_install.obstacle, [sys.executable, "scripts/clean_install.py", "--torch"]),
    # Crates outside of the workspace, each of which is Fanin with something more.
    Check("own-crates", anywhere, [sys.executable, "scripts/own_crates.py"]),
    # Another independent judge: the RoCE of Debian's kernel.
    Check("rdma", rdma.obstacle, ["sh", "-ec", f"{BUILT}{sys.executable} scripts/rdma.py --fanin target/debug/fanin float loss late numbers rings dead racks racks-loss control"]),
    # The communicator from C, C++ and Fortran.
    Check("c", anywhere, ["sh", "-ec", f"{BUILT}{sys.executable} scripts/c_tests.py --fanin target/debug/fanin"]),
    # The network plugin of NCCL, called as NCCL does, without a GPU.
    Check("nccl", anywhere, ["sh", "-ec", f"{BUILT}{sys.executable} scripts/nccl_tests.py --fanin target/debug/fanin"]),
    # Programs of Open MPI and MPICH that know nothing of it, mpi4py's tests among them.
    Check("mpi", mpi_tests.obstacle, ["sh", "-ec", f"{BUILT}{sys.executable} scripts/mpi_tests.py --fanin target/debug/fanin --mpi4py"]),
    # Once each, so that the measurements of `make bench-peers` can be made when they are wanted.
    Check("bench-collectives", anywhere, ["sh", "-ec", MEASURE_ONCE], alone=True),
    # Floods of one tenant beside the job of another: no sum is wrong. What it costs is for `scripts/floods.py` on a quiet machine.
    Check("floods", namespaces.obstacle, ["sh", "-ec", f"{BUILT}FANIN_PROFILE=dev {sys.executable} scripts/floods.py --rounds 1"], alone=True),
    # Several jobs and one of more ranks at one switch that is asked all the time: none is lost, nothing stays. The table is that of `scripts/load.py` as it is.
    Check("load", anywhere, ["sh", "-ec", f"{BUILT}{sys.executable} scripts/load.py --small --fanin target/debug/fanin"]),
    # The report's page in a browser, as a reader uses it.
    Check("report", report_tests.obstacle, ["sh", "-ec", f"{BUILT}{sys.executable} scripts/report_tests.py --fanin target/debug/fanin"]),
    # An independent judge of what is on the wire: scapy.
    Check("trace", anywhere, ["sh", "-ec", f"{BUILT}{sys.executable} scripts/trace_tests.py --fanin target/debug/fanin"]),
    # Golden packets of the state machines through the P4 programs.
    Check("p4", p4.obstacle, [sys.executable, "scripts/p4.py", "check"]),
    # Instructions and no time: other checks may run beside it.
    Check("hops", hops.obstacle, [sys.executable, "scripts/hops.py"]),
    Check("ns3-peer", ns3.obstacle, [sys.executable, "scripts/ns3.py", "--small"], alone=True),
]


#: What a command gave: its exit code, and what it printed where that was held back.
Ran = tuple[int, str]

#: How many lines of what a failed check printed stand once more at the end: of long output people, and CI, keep the end.
LINES_OF_A_FAILURE = 40


@dataclass
class Outcome:
    """What became of checks, by name; of those that failed, the end of what they printed where it was held back."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """The end of each failure's output, and a line that counts, and names what failed."""
        named = f" ({', '.join(self.failed)})" if self.failed else ""
        ends = [f"::: the end of {name}:\n{end}" for name, end in self.failed.items() if end]
        return "\n".join([*ends, f"{len(self.passed)} passed, {len(self.failed)} failed{named}, {len(self.skipped)} skipped"])


class Checks:
    """Runs checks and keeps which passed, failed and were skipped."""

    def __init__(self, run: Callable[[Sequence[str]], Ran]) -> None:
        self.run = run
        self.outcome = Outcome()
        self.printing = threading.Lock()

    def say(self, text: str) -> None:
        """Prints whole lines."""
        with self.printing:
            print(text, flush=True)

    def one(self, check: Check) -> None:
        """Runs one check, or says why not."""
        reason = check.obstacle()
        if reason is not None:
            self.outcome.skipped.append(check.name)
            self.say(f"skipped: {check.name} because {reason}")
            return
        self.say(f"running: {check.name}: {' '.join(check.command)}")
        begin = time.monotonic()
        code, output = self.run(check.command)
        elapsed_s = time.monotonic() - begin
        if code == 0:
            self.outcome.passed.append(check.name)
            self.say(f"{output}passed: {check.name} in {elapsed_s:.0f} s")
        else:
            self.outcome.failed[check.name] = "\n".join(output.splitlines()[-LINES_OF_A_FAILURE:])
            self.say(f"{output}failed: {check.name} in {elapsed_s:.0f} s, exit code {code}")


def run_checks(checks: Sequence[Check], run: Callable[[Sequence[str]], Ran], jobs: int = 1) -> Outcome:
    """Runs `checks`, up to `jobs` at a time, and then those that measure, and returns which passed, failed and were skipped."""
    state = Checks(run)
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for done in [pool.submit(state.one, check) for check in checks if not check.alone or jobs == 1]:
            done.result()
    for check in checks:
        if check.alone and jobs > 1:
            state.one(check)
    return state.outcome


def command_runner(jobs: int) -> Callable[[Sequence[str]], Ran]:
    """Runs commands from the root of the repository; what they print is held back where several run at a time."""

    def at_once(command: Sequence[str]) -> Ran:
        return subprocess.run(command, cwd=ROOT, check=False).returncode, ""

    def held_back(command: Sequence[str]) -> Ran:
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, done.stdout

    return at_once if jobs == 1 else held_back


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the checks and their commands, run none")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="run so many at a time, measurements alone; 1 if it is not given")
    parser.add_argument("names", nargs="*", metavar="NAME", help="run only these")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {check.name for check in CHECKS}
    if unknown:
        parser.error(f"no such check: {', '.join(sorted(unknown))}; there are {', '.join(check.name for check in CHECKS)}")
    chosen = [check for check in CHECKS if not options.names or check.name in options.names]
    if options.list:
        for check in chosen:
            print(f"{check.name}: {' '.join(check.command)}")
        return 0
    if options.jobs < 1:
        parser.error(f"--jobs: {options.jobs}: expected 1 or more")
    if shutil.which("cargo") is None:
        parser.error("cargo is not on PATH")
    outcome = run_checks(chosen, command_runner(options.jobs), options.jobs)
    print(outcome.summary())
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
