# SPDX-License-Identifier: Apache-2.0
"""An algorithm without a switch: two ranks send each other all numbers. Their endpoints can be broken."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from railweave import sdk

PORT, LANES, WINDOW = 5984, 64, 32
TIMEOUT_S = 0.02  # until a window is sent again
HEADER = struct.Struct("!II")  # the number of this chunk, and of the first one that the sender lacks
OPERATIONS = {"sum": np.add, "max": np.maximum}

Hook = Callable[["Exchange", Any], Any]


class Exchange(sdk.Endpoint):
    """A rank. A call is done when both ranks have all chunks of the call."""

    hooks: ClassVar[dict[str, Hook]] = {}
    """By method: gets the endpoint and a value of the method, and returns the value in its place."""

    def __init__(self, job: sdk.Job, rank: int) -> None:
        super().__init__(job, rank)
        self._count_from(1)
        self._chunks: list[bytes] = []
        self._answer, self._due = False, float("inf")
        self._hook("init", None)

    def _hook(self, name: str, value: Any) -> Any:
        hook = self.hooks.get(name)
        return hook(self, value) if hook else value

    def begin(self, given: sdk.Array, op: str) -> None:
        self._given, self._op = self._hook("begin", given), op
        parts = np.array_split(given, range(LANES, max(given.size, 1), LANES))
        self._chunks = [part.tobytes() for part in parts]
        self._first, self._next = self._next, self._next + len(parts)
        self._theirs: dict[int, bytes] = {}
        self._due = -float("inf")

    def transmit(self, now: float, budget: int) -> list[bytes]:
        found = []
        if self._due <= now:
            last = min(self._known + WINDOW, self._next)
            self.resends += max(0, min(self._sent, last) - self._known)
            found = [self._packet(number) for number in range(self._known, last)]
            self._sent, self._due = last, now + TIMEOUT_S
        if self._answer and not found:
            found = [HEADER.pack(0, self._lacks)]
        self._answer = False
        return self._hook("transmit", found)  # type: ignore[no-any-return]

    def _packet(self, number: int) -> bytes:
        return HEADER.pack(number, self._lacks) + self._chunks[number - self._first]

    def receive(self, datagrams: Sequence[memoryview], now: float) -> None:
        self._hook("receive", datagrams)
        for datagram in datagrams:
            number, known = HEADER.unpack_from(datagram)
            self._known = max(self._known, min(known, self._next))
            self._answer |= number > 0
            if self._first <= number < self._next:
                self._theirs[number] = bytes(datagram[HEADER.size :])
        while self._lacks in self._theirs:
            self._lacks += 1
        if self._known == self._sent < self._next:
            self._due = -float("inf")

    def deadline(self) -> float:
        return -float("inf") if self._answer or self.done else self._due

    @property
    def position(self) -> int:
        return self._hook("position", self._next)  # type: ignore[no-any-return]

    def start_at(self, position: int) -> None:
        self._count_from(position)

    def _count_from(self, position: int) -> None:
        self._first = self._next = self._lacks = self._known = self._sent = position

    @property
    def done(self) -> bool:
        return self._lacks == self._known == self._next and not self._answer

    @property
    def result(self) -> sdk.Array:
        theirs = b"".join(self._theirs[number] for number in range(self._first, self._next))
        added = OPERATIONS[self._op](self._given, np.frombuffer(theirs, self._given.dtype))
        return self._hook("result", added)  # type: ignore[no-any-return]


class Fault:
    """An effect on a method of one rank's endpoint until `repaired`. The default effect is to hang."""

    def __init__(self, rank: int, does: Callable[[Any], Any] | None = None) -> None:
        self.rank = rank
        self.repaired = threading.Event()
        self._does = does

    def __call__(self, endpoint: Exchange, value: Any) -> Any:
        if endpoint.rank != self.rank or self.repaired.is_set():
            return value
        return self._does(value) if self._does else self.repaired.wait()


def write(folder: Path, code: str = "from protocol.exchange import Exchange as Endpoint\n") -> Path:
    """Make the folder of the algorithm, with this `endpoint.py`."""
    folder.mkdir()
    keys = f'udp_port = {PORT}\nlanes = [{LANES}]\nheader_bytes = 8\nprogram = "endpoint.py"\n'
    keys += 'dtypes = ["float32", "int32"]\noperations = ["sum", "max"]\n'
    (folder / "algorithm.toml").write_text(f'name = "{folder.name}"\nsummary = "a test"\n{keys}')
    (folder / "endpoint.py").write_text(code)
    return folder
