# SPDX-License-Identifier: Apache-2.0
"""The switch's ports: interfaces of this network namespace, served by a native thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from railweave._native import ports as native
from railweave.errors import Unavailable
from railweave.switch import compiler
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import DIRECTIONS, Direction, Impairment, ImpairmentCounts
from railweave.switch.options import MAX_SUPER_PACKET_BYTES, SHARED_PREFIX
from railweave.switch.pipeline import Pipeline


class PortError(SwitchError):
    """The ports cannot be opened; the message names the port and what to do."""


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
    rx_refused: int  # offloads (GSO, checksum) that could not be resolved
    tx_packets: int
    tx_bytes: int
    tx_frames: int
    tx_dropped: int  # the queue was full, or the interface down
    tx_refused: int  # by the kernel, such as longer than the MTU
    tx_rewritten: int  # left with an IPv4 id or UDP checksum that the program did not write


@contextlib.contextmanager
def _port_errors() -> Iterator[None]:
    try:
        yield
    except (IndexError, OSError) as error:
        raise PortError(
            str(error), "an open port, and files that can be written", "correct the port or the folder"
        ) from None


class Ports:
    """Open ports. Packets are dropped, and counted, until there is a pipeline."""

    def __init__(
        self,
        interfaces: Mapping[int, str],
        super_packet_bytes: int = MAX_SUPER_PACKET_BYTES,
        *,
        exact_bytes: bool = False,
        priority_queues: int = 1,
    ) -> None:
        """Open all interfaces; `super_packet_bytes`: the largest super-packet that is sent (0: none).

        `exact_bytes`: only if the kernel cuts them into exactly the packets that the program wrote.
        """
        self._pipeline: Pipeline | None = None
        self._compilation: compiler.Background | None = None
        self._interfaces = dict(interfaces)
        try:
            self._native = native.SwitchPorts(
                list(interfaces.items()), super_packet_bytes, exact_bytes, priority_queues
            )
        except OSError as error:
            if isinstance(error, PermissionError) and SHARED_PREFIX not in str(error):
                raise Unavailable(
                    "raw packet sockets are not permitted",
                    "root (CAP_NET_RAW and CAP_NET_ADMIN)",
                    "run it with sudo",
                ) from None
            raise PortError(
                f"{error.strerror}",
                "interfaces that `ip link` lists and that are up, and links shm:NAME with a free end",
                "correct --interface",
            ) from None

    def start(self) -> None:
        """Begin to move packets."""
        self._native.start()

    def stop(self) -> None:
        """End the thread and all captures; the sockets stay open as long as this object."""
        self._native.stop()
        if self._compilation is not None:
            self._compilation.stop()
        for port in self._interfaces:
            self.capture(port, None)

    def use(self, pipeline: Pipeline | None) -> None:
        """Run packets through this pipeline from now on, also its packets out; None drops them."""
        if self._pipeline is not None:
            self._pipeline.connect(None)
        if self._compilation is not None:
            self._compilation.stop()
            self._compilation = None
        if pipeline is None:
            self._native.set_engine(None)
        else:
            self._native.set_engine(pipeline.native, pipeline.notices_fd)
            pipeline.connect(self.inject)
            self._compilation = compiler.Background(pipeline.native)
        self._pipeline = pipeline

    @property
    def execution(self) -> str:
        """Return how the program is run: compiled, or interpreted and why."""
        return "" if self._compilation is None else self._compilation.state

    def inject(self, port: int, packet: bytes) -> None:
        """Run a packet as if it came in on a port, soon; PortError if too many wait."""
        if not self._native.inject(port, packet):
            raise PortError("too many packets wait to be sent", "a free place", "send more slowly")

    def set_impairment(self, port: int, direction: Direction, impairment: Impairment | None) -> None:
        """Impair the link of a port in one direction, or remove the impairment; PortError without that port.

        `in` impairs packets to the program, `out` packets from it. Packets that wait are lost, as with a new
        cable.
        """
        values = None if impairment is None else impairment.of(port, direction).as_dict()
        with _port_errors():
            self._native.impair(port, direction == "out", values)

    def impairment_counts(self, port: int, direction: Direction) -> ImpairmentCounts | None:
        """Return the packet counts of an impairment; None without an impairment."""
        with _port_errors():
            counts = cast(dict[str, int] | None, self._native.impairment_counts(port, direction == "out"))
        return None if counts is None else ImpairmentCounts(**counts)

    def capture(self, port: int, folder: Path | None) -> None:
        """Capture a port's packets to INTERFACE_in.pcap and INTERFACE_out.pcap in a folder; None: stop.

        Impairments come before the capture, in both directions. PortError if there is no such port, or the
        files cannot be written.
        """
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise PortError(
                    f"--pcap {folder}: {error.strerror}",
                    "a folder that can be written to",
                    "name another one",
                ) from None
        for direction in DIRECTIONS:
            name = f"{self._interfaces.get(port)}_{direction}.pcap"
            with _port_errors():
                self._native.capture(port, direction == "out", "" if folder is None else str(folder / name))

    def counters(self) -> list[PortCounters]:
        """Return the counters of all ports."""
        return [PortCounters(**values) for values in self._native.counters()]
