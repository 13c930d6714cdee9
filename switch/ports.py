# SPDX-License-Identifier: Apache-2.0
"""The switch's ports: interfaces of this network namespace, served by a native thread."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from railweave._native import ports as native
from railweave.switch.options import MAX_SUPER_PACKET_BYTES
from railweave.switch.pipeline import Pipeline


class PortError(Exception):
    """The ports cannot be opened: what was given, and what to do."""


@dataclass(frozen=True)
class PortCounters:
    """Counters of one port, in packets as on a wire; a super-packet is one frame and many packets."""

    port: int
    interface: str
    up: bool
    rx_packets: int
    rx_bytes: int
    rx_frames: int
    rx_missed: int  # the kernel's buffer was full
    rx_refused: int  # offloads that could not be undone
    tx_packets: int
    tx_bytes: int
    tx_frames: int
    tx_dropped: int  # the queue was full, or the interface down
    tx_refused: int  # by the kernel, such as longer than the MTU


class Ports:
    """Open ports. Packets are dropped, and counted, until there is a pipeline."""

    def __init__(
        self, interfaces: Mapping[int, str], super_packet_bytes: int = MAX_SUPER_PACKET_BYTES
    ) -> None:
        """Open all interfaces; like packets leave in runs of up to `super_packet_bytes` (0: each alone)."""
        self._pipeline: Pipeline | None = None
        try:
            self._native = native.SwitchPorts(list(interfaces.items()), super_packet_bytes)
        except PermissionError:
            raise PortError("raw packet sockets need root (CAP_NET_RAW and CAP_NET_ADMIN)") from None
        except OSError as error:
            hint = "; `ip link` lists those there are" if error.errno == errno.ENODEV else ""
            raise PortError(f"{error.strerror}{hint}") from None

    def start(self) -> None:
        """Begin to move packets."""
        self._native.start()

    def stop(self) -> None:
        """End the thread; the sockets stay open until this object goes."""
        self._native.stop()

    def use(self, pipeline: Pipeline | None) -> None:
        """Run packets through this pipeline from now on, also its packets out; None drops them."""
        if self._pipeline is not None:
            self._pipeline.connect(None)
        if pipeline is None:
            self._native.set_engine(None)
        else:
            self._native.set_engine(pipeline.native, pipeline.notices_fd)
            pipeline.connect(self.inject)
        self._pipeline = pipeline

    def inject(self, port: int, packet: bytes) -> None:
        """Run a packet as if it came in on a port, soon; PortError if too many wait."""
        if not self._native.inject(port, packet):
            raise PortError("too many packets wait to be sent: slow down")

    def counters(self) -> list[PortCounters]:
        """Counters of all ports."""
        return [PortCounters(**values) for values in self._native.counters()]
