"""Multicast broadcast and allgather: a rank's side."""

from typing import Annotated

from numpy.typing import NDArray

import railweave._native.collectives


TREE: int = -1

CODE_BYTES: int = 16

KIND_SPREAD: int = 3

KIND_FETCH: int = 4

class Spreader:
    def __init__(self, *, group: int, child: int, rank: int, world_size: int, rate_bps: int = 0, roots: int = 65535, secret: bytes | None = None) -> None:
        """Without a secret packets have no codes."""

    def start(self, *, task: int, slice_id: int, collective: railweave._native.collectives.Collective, root: int = 0, input: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu', writable=False)], output: Annotated[NDArray, dict(shape=(None,), order='C', device='cpu')], count: int, stride: int = 0, chunk_bytes: int, unfinished: int, now: int) -> None: ...

    def receive(self, datagram: bytes, now: int, near: int = 0) -> None: ...

    def transmit(self, now: int) -> tuple[bytes, int] | None:
        """
        The next datagram to send now and the rank that it goes to (TREE: all of them), or None.
        """

    def deadline(self) -> int | None:
        """When `expire` wants to be called, or None."""

    def expire(self, now: int) -> None: ...

    def poll(self) -> int | None:
        """The id of a slice that is done, or None."""

    def set_reducing(self, round_trip: int) -> None:
        """
        Reductions use the same links, and their chunks' round trip is so many ns; 0: none do.
        """

    def halt(self) -> None:
        """Drop all tasks."""

    def pause(self) -> None:
        """Send nothing until `resume`."""

    def resume(self, group: int, child: int, now: int) -> None:
        """Go on in this group."""

    @property
    def group(self) -> int: ...

    @property
    def idle(self) -> bool: ...

    @property
    def tasks(self) -> int:
        """How many are kept for peers, or not done."""

    def stats(self) -> dict: ...
