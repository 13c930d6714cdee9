"""RoCEv2 packets"""

import enum


class Opcode(enum.IntEnum):
    SEND_FIRST = 0

    SEND_MIDDLE = 1

    SEND_LAST = 2

    SEND_LAST_IMMEDIATE = 3

    SEND_ONLY = 4

    SEND_ONLY_IMMEDIATE = 5

    WRITE_FIRST = 6

    WRITE_MIDDLE = 7

    WRITE_LAST = 8

    WRITE_LAST_IMMEDIATE = 9

    WRITE_ONLY = 10

    WRITE_ONLY_IMMEDIATE = 11

    READ_REQUEST = 12

    READ_RESPONSE_FIRST = 13

    READ_RESPONSE_MIDDLE = 14

    READ_RESPONSE_LAST = 15

    READ_RESPONSE_ONLY = 16

    ACKNOWLEDGE = 17

class FrameFault(enum.Enum):
    NONE = 0

    NOT_ROCE = 1

    MALFORMED = 2

    BAD_ICRC = 3

def build(opcode: Opcode, qpn: int, psn: int, payload: bytes = ..., *, ack_request: bool = False, solicited: bool = False, partition: int = 65535, reth: tuple[int, int, int] = (0, 0, 0), aeth: tuple[int, int, int] = (0, 0, 0), immediate: int = 0) -> bytes:
    """A transport packet, BTH to padding."""

def parse(transport: bytes) -> dict | None:
    """The fields of a transport packet, or None if it is malformed."""

class Path:
    """Addresses from here to the peer; IPv4 addresses as integers."""

    def __init__(self, source_mac: bytes, peer_mac: bytes, source: int, peer: int, source_port: int = 49152) -> None: ...

def seal(path: Path, ip_id: int, transport: bytes) -> bytes:
    """An Ethernet frame around a transport packet."""

def open_frames(frame: bytes, gso_size: int = 0) -> list:
    """
    (fault, source, destination, transport packet) of each packet of a frame; gso_size is the UDP payload of each in a super-packet.
    """

def try_kernel_cuts() -> bool:
    """
    Whether the kernel cuts UDP super-packets of packet sockets (Linux 6.2 and later). Sends one over loopback, to nobody. OSError if that cannot be tried
    """
