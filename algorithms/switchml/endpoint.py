# SPDX-License-Identifier: Apache-2.0
"""A worker of SwitchML. Each result from a slot lets it send its next block in that slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railweave import sdk

TIMEOUT_S, MOST_TIMEOUT_S = 0.01, 1.0
PHASES = 1 << 32
BIAS, LEAST_EXPONENT = 127, -126  # an exponent of float32 is sent as 1 to 255
HEADER = [("phase", ">u4"), ("slot", ">u2"), ("exponent", "u1"), ("unused", "u1")]


class Endpoint(sdk.Endpoint):
    """A worker. Packet i of a call uses slot i modulo the window, and needs the result of packet i - window.

    In a call of float32, the first packet of each slot carries only the exponent of the slot's first block.
    """

    def __init__(self, job: sdk.Job, rank: int) -> None:
        """Begin with phase 0 of each slot."""
        super().__init__(job, rank)
        self._phases = np.zeros(sdk.cells_of(job) // 2, np.int64)  # first phase of each slot in the next call
        self._format = np.dtype([*HEADER, ("numbers", ">i4", job.lanes)])
        self._results = self._packets = np.zeros(0, self._format)
        self._due = self._timeout_s = np.zeros(0)  # when the packet of each slot is sent next
        self._at = np.zeros(0, np.int64)  # index of the packet of each slot

    def begin(self, given: sdk.Array, op: str) -> None:
        """Cut the numbers into blocks. Floats are converted when their exponent is known."""
        if not given.size:
            raise ValueError("an empty vector was given; SwitchML expects at least one number")
        self._floats, self._size = given.dtype.kind == "f", given.size
        if self._floats and not np.isfinite(given).all():
            worst = given[~np.isfinite(given)][0]
            raise ValueError(f"{worst} was given; SwitchML expects finite numbers, which have an exponent")
        blocks = -(-given.size // self.job.lanes)
        self._blocks = np.zeros((blocks, self.job.lanes), given.dtype)
        self._blocks.reshape(-1)[: given.size] = given
        window = min(len(self._phases), blocks)
        numbers = np.arange(blocks + (window if self._floats else 0))
        slots = numbers % window
        self._packets = np.zeros(numbers.size, self._format)
        self._packets["slot"] = slots
        self._packets["phase"] = (self._phases[slots] + numbers // window) % PHASES
        self._phases = (self._phases + np.bincount(slots, minlength=len(self._phases))) % PHASES
        self._results = self._packets.copy()
        if self._floats:
            self._packets["exponent"][:blocks] = exponents(self._blocks) + BIAS
        else:
            self._packets["numbers"] = self._blocks
        self._at, self._due = np.arange(window), np.full(window, -np.inf)
        self._timeout_s = np.full(window, TIMEOUT_S)

    def transmit(self, now: float, budget: int) -> sdk.Array:
        """Return the packets that are due, at most one per slot."""
        slots = np.flatnonzero(self._due <= now)[:budget]
        self.resends += int(np.isfinite(self._due[slots]).sum())
        self._due[slots] = now + self._timeout_s[slots]
        self._timeout_s[slots] = np.minimum(2 * self._timeout_s[slots], MOST_TIMEOUT_S)
        sent = self._packets[self._at[slots]]
        return sent.view(np.uint8).reshape(len(slots), self._format.itemsize)

    def receive(self, datagrams: Sequence[memoryview], now: float) -> None:
        """Take the results of the packets that each slot waits for."""
        for datagram in datagrams:
            if len(datagram) == self._format.itemsize:
                result = np.frombuffer(datagram, self._format)[0]
                slot = int(result["slot"])
                if slot < len(self._at) and self._at[slot] < len(self._packets):
                    index = int(self._at[slot])
                    if result["phase"] == self._packets["phase"][index]:
                        self._take(index, slot, result)

    def _take(self, index: int, slot: int, result: np.void) -> None:
        """Take a result, and make the slot's next packet due."""
        following = index + len(self._at)
        self._results[index] = result
        self._at[slot], self._timeout_s[slot], self._due[slot] = following, TIMEOUT_S, np.inf
        if following < len(self._packets):
            self._due[slot] = -np.inf
            if self._floats:
                up = shift(self.job.ranks) - (int(result["exponent"]) - BIAS)
                wide = self._blocks[index].astype(np.float64)
                self._packets["numbers"][following] = np.rint(np.ldexp(wide, up))

    @property
    def position(self) -> int:
        """The first phase that no slot has used."""
        return int(self._phases.max())

    def start_at(self, position: int) -> None:
        """Begin in each slot with the phase behind this one, so that switches notice the gap."""
        self._phases[:] = position + 1

    def deadline(self) -> float:
        """Return when the packet of a slot is due."""
        return float(np.min(self._due, initial=np.inf))

    @property
    def done(self) -> bool:
        """Whether no slot waits for a result."""
        return bool((self._at >= len(self._packets)).all())

    @property
    def result(self) -> sdk.Array:
        """The call's sum."""
        blocks = len(self._blocks)
        sums = self._results["numbers"][-blocks:].astype(np.int32)
        if self._floats:
            agreed = self._results["exponent"][:blocks].astype(np.int32) - BIAS
            wide = np.ldexp(sums.astype(np.float64), (agreed - shift(self.job.ranks))[:, np.newaxis])
            sums = wide.astype(self._blocks.dtype)
        return sums.reshape(-1)[: self._size]

    @staticmethod
    def error_bound(given: Sequence[sdk.Array]) -> float:
        """Return the error of rounding each rank's number to half a unit of the block's fixed point."""
        ranks, most = len(given), max(int(exponents(one[np.newaxis])[0]) for one in given)
        return float(np.ldexp(ranks / 2, most - shift(ranks)))


def exponents(blocks: sdk.Array) -> sdk.Array:
    """Return the exponent e of each block: the least one such that all numbers are below 2^e."""
    most = np.abs(blocks).max(axis=1)
    found: sdk.Array = np.where(most > 0, np.maximum(np.frexp(most)[1], LEAST_EXPONENT), LEAST_EXPONENT)
    return found


def shift(ranks: int) -> int:
    """Return how many bits a block's numbers have beyond its exponent, so that the ranks' sum fits int32."""
    return 31 - ranks.bit_length()
