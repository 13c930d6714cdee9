# SPDX-License-Identifier: Apache-2.0
"""A loaded program: its parts, packets in and out, and reports to the control plane."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, Self

from railweave._native.engine import NO_PORT, Engine, InvalidPlan
from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering import lower
from railweave.switch.lowering.messages import fill
from railweave.switch.pipeline.arrays import Arrays
from railweave.switch.pipeline.idle import IdleTimers
from railweave.switch.pipeline.profiles import Profile
from railweave.switch.pipeline.replication import Replication
from railweave.switch.pipeline.tables import Table
from railweave.switch.pipeline.traces import Traces
from railweave.switch.pipeline.value_sets import ValueSet
from railweave.switch.pipeline.values import LOW64, Digest, Entry
from railweave.switch.program import Program
from railweave.switch.trace import number_of


class Log(NamedTuple):
    """Messages of log_msg and of failed assertions, oldest first, and the number of lost messages."""

    messages: list[str]
    lost: int


class Pipeline:
    """A program in a switch. All methods may be called from any thread, also while packets flow.

    The queues for the control plane are bounded (4,096 items and 4 MiB of each kind). The engine's statistic
    `unnoticed` counts items that are dropped for lack of room.
    """

    def __init__(self, program: Program, plan: bytes, source: bytes = b"") -> None:
        """Load a program lowered to a plan; traces need the BMv2 JSON that it was lowered from."""
        self.program = program
        self.native = Engine(plan)
        self._lock = threading.RLock()  # of tables and profiles, which refer to each other
        self.timers = IdleTimers()
        tables = program.tables.values()
        self.profiles = {
            name: Profile(info, [t for t in tables if t.profile == name], self.native, self._lock)
            for name, info in program.profiles.items()
        }
        self.tables = {
            info.name: Table(
                info,
                self.native,
                self.profiles[info.profile] if info.profile else None,
                program.meters[info.direct_meter] if info.direct_meter else None,
                self.timers,
                self._lock,
            )
            for info in tables
        }
        self.value_sets = {name: ValueSet(info, self.native) for name, info in program.value_sets.items()}
        self.ports: Collection[int] | None = None  # of the switch; None: not known
        self.arrays = Arrays(program, self.native)
        self.replication = Replication(self.native)
        self.traces = Traces(program, self.native, source)
        self.cpu_port: int | None = None  # of packet-in and packet-out: see set_cpu_port
        self._outlet: Callable[[int, bytes], None] | None = None
        self._notices_fd: int | None = None

    @classmethod
    def load(cls, bmv2_json: bytes) -> Self:
        """Lower a BMv2 JSON program and load it; raises UnsupportedConstruct or InvalidProgram."""
        try:
            return cls(*lower(bmv2_json), bmv2_json)
        except InvalidPlan as error:  # within the lowering's limits, beyond the engine's
            raise InvalidProgram(f"the program is too large for the engine: {error}") from None

    def snapshot(self) -> Self:
        """Return the pipeline with its tables, profiles and value sets as they are now, to be read only.

        Counters, registers and the times of hits stay those of the packets.
        """
        view = copy.copy(self)
        with self._lock:
            view.profiles = {name: one.snapshot() for name, one in self.profiles.items()}
            view.tables = {name: one.snapshot() for name, one in self.tables.items()}
            view.value_sets = {name: one.snapshot() for name, one in self.value_sets.items()}
        return view

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold packets back during the block: each sees the tables before or after. Not reentrant."""
        self.native.freeze()
        try:
            yield
        finally:
            self.native.thaw()

    def set_port_up(self, port: int, up: bool) -> None:
        """Let members that watch a port take part in their groups while it is up."""
        for profile in self.profiles.values():
            profile.set_port_up(port, up)

    def inject(self, port: int, packet: bytes, now_us: int = 0) -> list[tuple[int, bytes]]:
        """Run one packet to completion. Return all packets that leave, as (port, packet)."""
        leaving = [(int(to), bytes(out)) for to, out in self.native.inject(port, packet, now_us)]
        if self._notices_fd is not None and self.native.has_notices():
            os.eventfd_write(self._notices_fd, 1)
        return leaving

    @property
    def notices_fd(self) -> int:
        """Return an eventfd, readable while digests or packets to the CPU port wait; reading clears it."""
        with self._lock:
            if self._notices_fd is None:
                self._notices_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                weakref.finalize(self, os.close, self._notices_fd)
            return self._notices_fd

    def expired(self, now_us: int, most: int) -> tuple[list[tuple[str, Entry]], bool]:
        """Look at up to `most` entries. Return the idle ones with their tables, and whether more are due.

        An idle entry is returned again after each time-out, until a packet hits it.
        """
        with self._lock:
            found, more = self.timers.expired(
                now_us, lambda table, handle: self.tables[table].last_hit_us(handle), most
            )
            return [(table, self.tables[table].entry(handle)) for table, handle in found], more

    def digests(self) -> list[Digest]:
        """Return digests since the last call, in order."""
        result = []
        for number, data in self.native.take_digests():
            info = self.program.digests[number]
            values, at = [], 0
            for width in info.bitwidths:
                size = (width + 7) // 8
                values.append(int.from_bytes(data[at : at + size], "big"))
                at += size
            result.append(Digest(info.name, tuple(values)))
        return result

    def set_cpu_port(self, port: int | None) -> None:
        """Queue packets to this port for `packets_in` from now on, instead of sending them."""
        if port is not None and not 0 <= port < NO_PORT:
            raise ValueError(f"ports have 16 bits: {port}")
        self.cpu_port = port
        self.native.set_cpu_port(NO_PORT if port is None else port)

    def packets_in(self) -> list[bytes]:
        """Return packets to the CPU port since the last call, in order, with their controller headers."""
        return [bytes(data) for _, data in self.native.take_packets()]

    def packet_out(self, packet: bytes, now_us: int | None = None) -> list[tuple[int, bytes]]:
        """Send a packet, controller header in front, as if it came in on the CPU port.

        Packets leave through the ports that serve this pipeline. Without ports they are returned.
        """
        if self.cpu_port is None:
            raise ValueError("there is no CPU port: see set_cpu_port")
        if self._outlet is not None:
            self._outlet(self.cpu_port, packet)
            return []
        return self.inject(self.cpu_port, packet, self.native.now_us() if now_us is None else now_us)

    def connect(self, outlet: Callable[[int, bytes], None] | None) -> None:
        """Give the packets of `packet_out` to these ports; None: run them here."""
        self._outlet = outlet

    def seed(self, seed: int) -> None:
        """Make `random` repeatable."""
        self.native.seed(seed & LOW64)

    def set_logging(self, on: bool) -> None:
        """Keep messages of log_msg for `take_log`, or drop them. Failed assertions are always kept."""
        self.native.set_logging(on)

    def take_log(self) -> Log:
        """Return the program's messages since the last call."""
        records, lost = self.native.take_log()
        texts = self.program.messages
        messages = [
            fill(texts[number], [number_of(*value) for value in values]) for number, values in records
        ]
        return Log(messages, lost)
