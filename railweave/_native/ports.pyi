"""Packet I/O of the embedded switch"""

from collections.abc import Sequence


class SwitchPorts:
    """Sockets of all ports and the thread between them and an engine"""

    def __init__(self, interfaces: Sequence[tuple[int, str]], super_packet_bytes: int = 65535, exact_bytes: bool = False, priority_queues: int = 1) -> None:
        """
        Opens (port, interface name) pairs; OSError names the interface that cannot be opened
        """

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def inject(self, port: int, packet: bytes) -> bool:
        """
        Runs a packet through the engine, soon, as if it came in on a port; False if too many wait
        """

    def set_engine(self, engine: object | None, notices: int = -1) -> None:
        """Packets go through this engine from now on; None drops them"""

    def impair(self, port: int, out: bool, impairment: object | None) -> None:
        """Impairs a port in one direction; None: not any more"""

    def impairment_counts(self, port: int, out: bool) -> dict | None: ...

    def capture(self, port: int, out: bool, path: str) -> None:
        """Writes what passes to a pcap file; an empty path ends it"""

    def counters(self) -> list:
        """One dictionary per port"""

    @property
    def without_program(self) -> int: ...

    @property
    def no_such_port(self) -> int: ...
