"""In-network aggregation: endpoint, packets, fixed point."""

from typing import Annotated

from numpy.typing import NDArray

import railweave._native.collectives


VERSION: int = 1

UDP_PORT: int = 5257

HEADER_BYTES: int = 16

SEAL_LANES: int = 4

SLOTS: int = 16384

MAX_CHILDREN: int = 31

MAX_WORLD_SIZE: int = 1023

OP_MAX: int = 1

FLAG_NONFINITE: int = 2

FLAG_OVERFLOW: int = 4

FLAG_MISMATCH: int = 8

FLAG_OWNER: int = 32

FLAG_LAST: int = 64

class Header:
    def __init__(self, *, version: int = 1, kind: int = 0, op: int = 0, group: int = 0, child: int = 0, flags: int = 0, slot: int = 0, round: int = 0, mark: int = 0) -> None: ...

    @property
    def version(self) -> int: ...

    @version.setter
    def version(self, arg: int, /) -> None: ...

    @property
    def kind(self) -> int: ...

    @kind.setter
    def kind(self, arg: int, /) -> None: ...

    @property
    def op(self) -> int: ...

    @op.setter
    def op(self, arg: int, /) -> None: ...

    @property
    def group(self) -> int: ...

    @group.setter
    def group(self, arg: int, /) -> None: ...

    @property
    def child(self) -> int: ...

    @child.setter
    def child(self, arg: int, /) -> None: ...

    @property
    def flags(self) -> int: ...

    @flags.setter
    def flags(self, arg: int, /) -> None: ...

    @property
    def slot(self) -> int: ...

    @slot.setter
    def slot(self, arg: int, /) -> None: ...

    @property
    def round(self) -> int: ...

    @round.setter
    def round(self, arg: int, /) -> None: ...

    @property
    def mark(self) -> int: ...

    @mark.setter
    def mark(self, arg: int, /) -> None: ...

    def __eq__(self, arg: Header, /) -> bool: ...

    def encode(self) -> bytes: ...

    @staticmethod
    def decode(arg: bytes, /) -> Header: ...

def headroom_bits(arg: int, /) -> int: ...

def scan(arg: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], /) -> tuple[int, bool]: ...

def quantise(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, arg2: int, /) -> bytes: ...

def quantise_finite(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, arg2: int, /) -> tuple: ...

def dequantise(arg0: bytes, arg1: int, arg2: int, /) -> bytes: ...

def dequantise_mean(arg0: bytes, arg1: int, arg2: int, arg3: int, /) -> bytes: ...

def encode_classes(arg: bytes, /) -> bytes: ...

def exact_lanes(arg: int, /) -> int: ...

def encode_exact(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, /) -> bytes: ...

def decode_exact(arg0: bytes, arg1: int, arg2: int, arg3: bool, /) -> bytes: ...

WIDE_LANES: int = 2

def encode_wide(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: int, /) -> bytes | None: ...

def decode_wide(arg0: bytes, arg1: int, arg2: int, arg3: bool, /) -> bytes: ...

def encode_ordered(arg0: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: str, /) -> bytes: ...

def decode_ordered(arg0: bytes, arg1: str, /) -> bytes: ...

def decode_integer_mean(arg0: bytes, arg1: int, /) -> bytes: ...

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
    def __init__(self, *, group: int, child: int, slots: int, lanes: int, world_size: int, window: int = 32, reorder: int = 4, packet_time: int = 0, stall_after: int = 300000000, secret: bytes | None = None, rank: int = 0, redo_within: int = 0) -> None: ...

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

def spreads(collective: railweave._native.collectives.Collective, dtype: railweave._native.collectives.DType, count: int, world_size: int, lanes: int, trees: int) -> bool:
    """
    Whether so many elements (of a shard, where there are shards) are multicast on such trees.
    """

def measure_endpoint(dtype: str, op: str, lanes: int, slots: int, count: int, rounds: int, sealed: bool = False) -> dict:
    """CPU time of an endpoint alone, in nanoseconds over all chunks."""
