# SPDX-License-Identifier: Apache-2.0
"""Packets in and out of a pipeline, and notifications to the control plane."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

from railweave._native.engine import NO_PORT
from railweave.switch.pipeline.base import Base
from railweave.switch.pipeline.matches import LOW64
from railweave.switch.pipeline.values import Digest
from railweave.switch.program import Program


class Notices(Base):
    """Injection of packets, digests, and the CPU port.

    What waits for the control plane is bounded (4,096 items and 4 MiB of each kind); the engine's statistic
    `unnoticed` counts those that exceed it.
    """

    def __init__(self, program: Program, plan: bytes) -> None:
        """There is no CPU port at first."""
        super().__init__(program, plan)
        self._cpu_port: int | None = None
        self._outlet: Callable[[int, bytes], None] | None = None
        self._notices_fd: int | None = None

    def inject(self, port: int, packet: bytes, now_us: int = 0) -> list[tuple[int, bytes]]:
        """Run one packet to completion: all packets that leave, as (port, packet)."""
        leaving = [(int(to), bytes(out)) for to, out in self.native.inject(port, packet, now_us)]
        if self._notices_fd is not None and self.native.has_notices():
            os.eventfd_write(self._notices_fd, 1)
        return leaving

    @property
    def notices_fd(self) -> int:
        """An eventfd, readable when digests or packets to the CPU port wait; reading clears it."""
        with self._lock:
            if self._notices_fd is None:
                self._notices_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                weakref.finalize(self, os.close, self._notices_fd)
            return self._notices_fd

    def digests(self) -> list[Digest]:
        """Digests since the last call, in order."""
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

    @property
    def cpu_port(self) -> int | None:
        """The port of packet-in and packet-out, if there is one."""
        return self._cpu_port

    def set_cpu_port(self, port: int | None) -> None:
        """Queue packets to this port for `packets_in` from now on, instead of sending them."""
        if port is not None and not 0 <= port < NO_PORT:
            raise ValueError(f"ports have 16 bits: {port}")
        self._cpu_port = port
        self.native.set_cpu_port(NO_PORT if port is None else port)

    def packets_in(self) -> list[bytes]:
        """Packets to the CPU port since the last call, in order, with their controller headers in front."""
        return [bytes(data) for _, data in self.native.take_packets()]

    def packet_out(self, packet: bytes, now_us: int | None = None) -> list[tuple[int, bytes]]:
        """Send a packet, controller header in front, as if it came in on the CPU port.

        Where ports serve this pipeline it leaves through them; else what leaves is returned.
        """
        if self._cpu_port is None:
            raise ValueError("there is no CPU port: see set_cpu_port")
        if self._outlet is not None:
            self._outlet(self._cpu_port, packet)
            return []
        return self.inject(self._cpu_port, packet, self._now(now_us))

    def connect(self, outlet: Callable[[int, bytes], None] | None) -> None:
        """Hand what `packet_out` sends to these ports; None: run it here."""
        self._outlet = outlet

    def seed(self, seed: int) -> None:
        """Make `random` repeatable."""
        self.native.seed(seed & LOW64)
