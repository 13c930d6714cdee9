"""User-space RoCEv2 reliable connections"""

import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray

from railweave._native.roce import (
    FrameFault as FrameFault,
    Opcode as Opcode,
    Path as Path,
    build as build,
    open_frames as open_frames,
    parse as parse,
    seal as seal,
    try_kernel_cuts as try_kernel_cuts
)


class Operation(enum.Enum):
    SEND = 0

    WRITE = 1

    READ_RESPONSE = 3

    ACKNOWLEDGE = 4

    READ = 2

UDP_PORT: int = 4791

def sequence_near(reference: int, psn: int) -> int:
    """The 64-bit sequence nearest to reference with this PSN."""

def crc32(bytes: bytes) -> int: ...

def crc32_behind(head: bytes, bytes: bytes) -> tuple:
    """
    crc32 of 48 bytes and those behind them, twice, and the copy that the second makes.
    """

def crc32_by_table(bytes: bytes) -> int:
    """The portable path of crc32."""

class CompletionKind(enum.Enum):
    SEND = 0

    WRITE = 1

    RECEIVE = 2

    RECEIVE_WRITE = 3

class Status(enum.Enum):
    SUCCESS = 0

    FLUSHED = 1

    RETRIES_EXCEEDED = 2

    RNR_RETRIES_EXCEEDED = 3

    REMOTE_ACCESS_ERROR = 4

    REMOTE_INVALID_REQUEST = 5

    REMOTE_OPERATIONAL_ERROR = 6

    BAD_RESPONSE = 7

class Completion:
    @property
    def id(self) -> int: ...

    @property
    def kind(self) -> CompletionKind: ...

    @property
    def status(self) -> Status: ...

    @property
    def byte_count(self) -> int: ...

    @property
    def immediate(self) -> int | None: ...

class QueuePairStats:
    @property
    def packets_sent(self) -> int: ...

    @property
    def packets_received(self) -> int: ...

    @property
    def retransmissions(self) -> int: ...

    @property
    def timeouts(self) -> int: ...

    @property
    def naks_sent(self) -> int: ...

    @property
    def naks_received(self) -> int: ...

    @property
    def duplicates(self) -> int: ...

    @property
    def out_of_order(self) -> int: ...

    @property
    def refused(self) -> int: ...

class QueuePairOptions:
    def __init__(self, qpn: int, peer_qpn: int, send_psn: int = 0, receive_psn: int = 0, *, path_mtu: int = 1024, window: int = 64, min_window: int = 8, most_window: int = 1024, window_time: int = 0, first_timeout: int = 20000000, min_timeout: int = 4000000, max_timeout: int = 250000000, retries: int = 7, rnr_retries: int = 7, rnr_timer: int = 14) -> None:
        """Times in nanoseconds, windows in packets."""

    @property
    def path_mtu(self) -> int: ...

class MemoryRegions:
    def __init__(self) -> None: ...

    def add(self, buffer: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], qpn: int = 0) -> int:
        """
        Registers a buffer; returns its rkey. Its remote address is the buffer's own.
        """

    def remove(self, rkey: int) -> None: ...

class QueuePair:
    """A reliable connection without I/O; times in nanoseconds."""

    def __init__(self, options: QueuePairOptions, memory: MemoryRegions) -> None: ...

    def post(self, id: int, operation: Operation, local: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], *, immediate: int | None = None, remote_address: int = 0, rkey: int = 0, quiet: bool = False) -> None: ...

    def post_receive(self, id: int, buffer: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def receive(self, transport: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> bytes | None:
        """The next packet to send, or None."""

    @property
    def deadline(self) -> int | None: ...

    def expire(self, now: int) -> None: ...

    def poll(self) -> Completion | None: ...

    @property
    def failed(self) -> bool: ...

    @property
    def window(self) -> int: ...

    @property
    def stats(self) -> QueuePairStats: ...

class EndpointStats:
    @property
    def frames_sent(self) -> int: ...

    @property
    def bytes_sent(self) -> int: ...

    @property
    def frames_received(self) -> int: ...

    @property
    def bytes_received(self) -> int: ...

    @property
    def refused(self) -> int: ...

    @property
    def strangers(self) -> int: ...

    @property
    def segmentation_refused(self) -> int: ...

class Endpoint:
    """Queue pairs on an interface, with their socket; addresses as integers."""

    def __init__(self, interface: str, address: int, path_mtu: int = 1024, burst_bytes: int = 49152) -> None: ...

    def reserve(self) -> int:
        """A random queue pair number for a later connect."""

    def connect(self, options: QueuePairOptions, peer: int, peer_mac: bytes) -> QueuePair:
        """
        The queue pair; it keeps posted buffers alive, so keep it as long as the endpoint.
        """

    def register(self, buffer: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> int:
        """Registers a buffer for all queue pairs; its rkey."""

    @property
    def mac(self) -> bytes: ...

    def step(self, timeout_ns: int) -> None:
        """Send, wait for something to happen, handle it."""

    @property
    def stats(self) -> EndpointStats: ...
