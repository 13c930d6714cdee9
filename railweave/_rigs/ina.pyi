"""The in-network endpoint and its parts"""

from typing import Annotated

from numpy.typing import NDArray

import railweave._native.collectives
from railweave._native.ina import (
    Header as Header,
    exact_lanes as exact_lanes,
    spreads as spreads
)


HEADER_BYTES: int = 16

SEAL_LANES: int = 4

WIDE_LANES: int = 2

LEAST_SPREAD_CHUNKS: int = 16

SPREAD_CODE_BYTES: int = 16

VERSION: int = 1

UDP_PORT: int = 5257

SLOTS: int = 16384

MAX_CHILDREN: int = 31

MAX_WORLD_SIZE: int = 1023

OP_MAX: int = 1

FLAG_NONFINITE: int = 2

FLAG_OVERFLOW: int = 4

FLAG_MISMATCH: int = 8

FLAG_OWNER: int = 32

FLAG_LAST: int = 64

def headroom_bits(arg: int, /) -> int: ...

def scan(arg: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> tuple[int, bool]: ...

def quantise(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, arg2: int, /) -> bytes: ...

def quantise_finite(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, arg2: int, /) -> tuple: ...

def dequantise(arg0: bytes, arg1: int, arg2: int, /) -> bytes: ...

def dequantise_mean(arg0: bytes, arg1: int, arg2: int, arg3: int, /) -> bytes: ...

def encode_classes(arg: bytes, /) -> bytes: ...

def encode_exact(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, /) -> bytes: ...

def decode_exact(arg0: bytes, arg1: int, arg2: int, arg3: bool, /) -> bytes: ...

def encode_wide(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, /) -> bytes | None: ...

def decode_wide(arg0: bytes, arg1: int, arg2: int, arg3: bool, /) -> bytes: ...

def seal_primes(world_size: int) -> list[int]: ...

class Counts:
    def __init__(self, agreeing: int = 0, nonfinite: int = 0, overflowing: int = 0) -> None: ...

    @property
    def agreeing(self) -> int: ...

    @property
    def nonfinite(self) -> int: ...

    @property
    def overflowing(self) -> int: ...

class Seal:
    def __init__(self, secret: bytes, tree: int, rank: int, world_size: int, lanes: int) -> None: ...

    def mark(self, chunk: int, identity: int) -> int: ...

    def by_member(self, chunk: int, mark: int) -> bool: ...

    def close(self, data: bytes, counts: Counts, chunk: int, bound: int) -> bytes:
        """The data lanes, and the seal behind them."""

    def holds(self, lanes: bytes, chunk: int, bound: int, without_own: bool = False) -> bool: ...

    def counts(self, lanes: bytes) -> Counts: ...

class Endpoint:
    def __init__(self, *, group: int, child: int, slots: int, lanes: int, world_size: int, window: int = 32, reorder: int = 4, packet_time: int = 0, stall_after: int = 300000000, secret: bytes | None = None, rank: int = 0, redo_within: int = 0, longest_wait: int = 0) -> None: ...

    def start(self, op_index: int, op: str, input: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], count: int | None = None) -> None: ...

    def start_part(self, op_index: int, op: str, input: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], collective: railweave._native.collectives.Collective, root: int, rank: int, whole: int, offset: int, count: int) -> None:
        """
        A part of a collective: `count` elements from `offset` on, of the tensor or of each shard, which has `whole` elements
        """

    def receive(self, datagram: bytes, now: int) -> None: ...

    def transmit(self, now: int) -> bytes | None:
        """The next datagram to send now, or None."""

    def deadline(self) -> int | None:
        """When `expire` wants to be called, or None."""

    def expire(self, now: int) -> None: ...

    def poll(self) -> object:
        """
        None, the op index of a slice that is done, (kind, message) of a failure, ("stalled", whether the first switch answers, whether the root does), or ("stalled", "spoilt") where the switch has a wrong sum.
        """

    def halt(self) -> None:
        """Drop all slices, and send and take nothing until `restart`."""

    def next_chunk(self) -> int:
        """Beyond all chunks that were sent, over all groups."""

    def restart(self, base: int, now: int) -> None:
        """Go on at the greatest next chunk of all ranks."""

    def pause(self, now: int) -> int:
        """
        Send and take nothing until `resume`; the lowest chunk without a result.
        """

    def resume(self, *, group: int, child: int, slots: int, lanes: int, resume_from: int, now: int) -> None:
        """Go on in another group, from the least position of all ranks."""

    def abort(self) -> None: ...

    @property
    def group(self) -> int: ...

    @property
    def position(self) -> int: ...

    @property
    def idle(self) -> bool: ...

    def stats(self) -> dict: ...
