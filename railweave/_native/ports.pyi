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

class ImpairedLink:
    """One direction of a bad link, in virtual time of nanoseconds"""

    def __init__(self, impairment: dict) -> None: ...

    def push(self, packet: bytes, now: int, priority: int = 0) -> None: ...

    def pop(self, now: int) -> bytes | None:
        """The next packet that is due, or None"""

    def deadline(self) -> int | None:
        """When there will be one, or None"""

    def backlog(self, now: int, priority: int = 0) -> tuple[int, int]:
        """
        Packets that wait for the link's rate, and how long one that comes now would
        """

    def counts(self) -> dict: ...

class SharedLink:
    """An end of the shared link `shm:NAME`, until it is deleted"""

    def __init__(self, interface: str) -> None:
        """OSError if the link has two ends"""

    def send(self, frame: bytes) -> bool:
        """False if the ring is full"""

    def receive(self) -> bytes | None:
        """The next frame, empty if it is invalid; None if there is none"""

SHARED_LINK_FRAMES: int = 512

SHARED_LINK_MAX_FRAME: int = 10300

def cut(frame: bytes, offload: bytes) -> list | None:
    """
    The packets of a frame with this struct virtio_net_hdr; None if it cannot be understood
    """

def coalesce(packets: Sequence[bytes], super_packet_bytes: int = 65535, exact_bytes: bool = False) -> list:
    """
    What one port would send for these packets: (struct virtio_net_hdr, frame) pairs
    """
