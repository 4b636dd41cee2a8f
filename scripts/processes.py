"""Processes that belong together and end together. Python's standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType


class Failed(Exception):
    """A process failed, or took too long."""


class Crew:
    """Starts processes; none of them, nor what they have started, outlives the `with` block."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen] = []
        self._files: dict[int, tuple] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        with uninterrupted():
            self.end()

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen:
        """Starts a process in a session of its own. Its output goes to files, so that nobody has to read it for it to go on."""
        out, errors = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        process = subprocess.Popen(
            command, env=os.environ | (environment or {}), stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
        )
        self._running.append(process)
        self._files[process.pid] = (out, errors)
        return process

    def finish(self, process: subprocess.Popen, deadline: float) -> str:
        """Waits until the process has ended well and returns its standard output. `deadline` is a time of `time.monotonic`."""
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise Failed(f"`{spoken(process.args)}` has not ended in time{self.last_words(process)}") from error
        self._running.remove(process)
        # What it has started and left behind ends with it. At once: the number may soon be somebody else's.
        signal_session(process.pid, signal.SIGKILL)
        if code != 0:
            raise Failed(f"`{spoken(process.args)}` ended with {code}{self.last_words(process)}")
        out, _ = self._files[process.pid]
        out.seek(0)
        return out.read()

    def wait_until_it_says(self, process: subprocess.Popen, words: str, deadline: float) -> None:
        """Waits until the process has written `words` to its standard output. `deadline` is a time of `time.monotonic`."""
        while True:
            if self.has_said(process, words):
                return
            if process.poll() is not None:
                raise Failed(f"`{spoken(process.args)}` has ended with {process.returncode}{self.last_words(process)}")
            if time.monotonic() >= deadline:
                raise Failed(f"`{spoken(process.args)}` has not said {words!r} in time{self.last_words(process)}")
            time.sleep(0.02)

    def has_said(self, process: subprocess.Popen, words: str) -> bool:
        """Whether the process has written `words` to its standard output; it may go on."""
        out, _ = self._files[process.pid]
        # Not `seek`: the process writes where this file stands.
        return words.encode() in os.pread(out.fileno(), 1 << 16, 0)

    def words(self, process: subprocess.Popen) -> str:
        """What the process has said: its standard output, then its errors."""
        texts = []
        for file in self._files[process.pid]:
            file.seek(0)
            texts.append(file.read().strip())
        return "\n".join(text for text in texts if text)

    def last_words(self, process: subprocess.Popen) -> str:
        """The end of what the process has said, to be added to an error."""
        words = self.words(process)
        return f": {words[-1_000:]}" if words else ""

    def end(self) -> None:
        """Ends what still runs: politely first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running:
                if process.poll() is None:
                    signal_session(process.pid, number)
            deadline = time.monotonic() + 5
            for process in [process for process in self._running if process.returncode is None]:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
                    # What it has started may not have heeded.
                    signal_session(process.pid, signal.SIGKILL)
        self._running.clear()
        for files in self._files.values():
            for file in files:
                file.close()
        self._files.clear()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Tidies up: a second Ctrl-C must not leave half of it behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def signal_session(leader: int, number: signal.Signals) -> None:
    """Sends a signal to a process that leads a session and to all that it has started there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def spoken(command: Sequence[str]) -> str:
    """A command as a user would type it."""
    return " ".join(str(word) for word in command)


def cpu_seconds(pid: int) -> float:
    """Processor time that a running process has used, all its threads together, in steps of a hundredth of a second."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        # The name is in brackets and may hold anything.
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
