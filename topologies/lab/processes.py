# SPDX-License-Identifier: Apache-2.0
"""Child processes that end with the lab. Their output is kept, and their end is reported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from railweave.topologies.errors import LabError, LabUnavailable

STOP_GRACE_S = 1.5
BLOCK_BYTES = 1 << 16
PROGRAM, COMPILING = "program ", "being compiled"  # begin and end of a switch's lines on its program
_ERROR = re.compile(r"(railweave[ \w]*|[A-Z]\w*|\w+(\.\w+)+): ")


@dataclass(frozen=True)
class Line:
    """A line that a child has printed."""

    child: Child
    text: str


@dataclass(frozen=True)
class Exit:
    """A child's end. `code` is its exit status, negative for a signal."""

    child: Child
    code: int


Event = Line | Exit


class Child:
    """A running process. Its output goes to `log`, and line by line to the queue given to `start`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        """Wrap a started process. Use `start`."""
        self.name = name
        self.pid = process.pid
        self.log = log
        self._process = process
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._compiled = asyncio.Event()
        self._compiled.set()
        self._reader: asyncio.Task[None] | None = None
        self._trouble = ""  # why its output could not be read

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        log: Path,
        events: asyncio.Queue[Event],
        environment: Mapping[str, str] | None = None,
        *,
        merged: bool = False,
    ) -> Child:
        """Start `command` in its own session (the lab handles Ctrl-C), killed when this process ends.

        Its stderr goes only to the log. With `merged`, stderr goes where stdout goes.
        """
        log.write_bytes(b"")
        with log.open("ab") as output:  # append, as `_read_lines` does: neither overwrites the other
            process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT if merged else output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        child = cls(name, process, log)
        child._reader = asyncio.create_task(child._read(events))
        return child

    async def _read(self, events: asyncio.Queue[Event]) -> None:
        """Pass on lines of any length, and always the end, for which the lab waits."""
        try:
            await self._read_lines(events)
        except OSError as error:
            self._trouble = f"its output cannot be kept: {error}"
            self.signal(signal.SIGKILL)
        code = await self._process.wait()
        if not self._ready.done():
            kind = LabUnavailable if self._trouble else LabError
            self._ready.set_exception(
                kind(self.failure_notice(code), "`ready` on its output", "read its log")
            )
            self._ready.exception()  # mark it as retrieved, because nobody may wait for it
        self._compiled.set()
        events.put_nowait(Exit(self, code))

    async def _read_lines(self, events: asyncio.Queue[Event]) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - asked for above
        parts: list[bytes] = []  # of a line that has not ended
        with self.log.open("ab", buffering=0) as log:
            while block := await stdout.read(BLOCK_BYTES):
                log.write(block)
                first, *others = block.split(b"\n")
                parts.append(first)
                for other in others:
                    self._take(b"".join(parts), events)
                    parts = [other]
            if last := b"".join(parts):
                self._take(last, events)

    def _take(self, line: bytes, events: asyncio.Queue[Event]) -> None:
        text = line.decode(errors="replace")
        if text.startswith("ready") and not self._ready.done():
            self._ready.set_result(text)
        if text.startswith(PROGRAM) and text.endswith(COMPILING):
            self._compiled.clear()
        elif text.startswith(PROGRAM):
            self._compiled.set()
        events.put_nowait(Line(self, text))

    async def ready(self, deadline_s: float) -> str:
        """Wait for the line `ready …` and return it. LabError if the child ends first, or at the deadline."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._ready), deadline_s)
        except TimeoutError:
            raise LabError(
                f"{self.name} was not ready within {deadline_s:g} s",
                "`ready` on its output",
                f"read {self.log}",
            ) from None

    async def compiled(self) -> None:
        """Wait until the child has ended, or does not compile a program (only switches do)."""
        await self._compiled.wait()

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.returncode is None

    @property
    def trouble(self) -> str:
        """The problem, as far as the child or the last line of its log names it."""
        return self._trouble or last_line(self.log)

    def failure_notice(self, code: int) -> str:
        """Return how the child ended, with the last line of its log."""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        last = self.trouble
        return f"{self.name} {how}" + (f": {last}" if last else "") + f" (log: {self.log})"

    def signal(self, number: int) -> None:
        """Send a signal to the child and the processes that it has started, if the child still runs."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def freeze(self) -> None:
        """Stop the child with all its threads. Return when they have stopped."""
        self.signal(signal.SIGSTOP)
        if self.running:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let a frozen child continue."""
        self.signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End the child by SIGKILL, like a crash. Return when it is gone."""
        await self.stop(0)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End the child by SIGTERM, and by SIGKILL after `grace_s`. 0: SIGKILL at once."""
        if grace_s:
            self.signal(signal.SIGTERM)
            self.thaw()  # a stopped process handles no signal
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self._process.wait()
        if self._reader is not None:
            await self._reader


def last_line(log: Path) -> str:
    """Return the last error in a log, in the form of Python and our commands, else its last line."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    words = [line for line in lines if line and not line.startswith("{")]
    errors = [line for line in words if _ERROR.match(line)]
    return (errors or words or [""])[-1]
