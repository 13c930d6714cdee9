"""Packet I/O of the embedded switch"""

from collections.abc import Sequence

from railweave._native.ports import SwitchPorts as SwitchPorts


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
