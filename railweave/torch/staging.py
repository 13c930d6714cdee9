# SPDX-License-Identifier: Apache-2.0
"""Carry CUDA tensors over the rails in pieces, through pinned memory, so that copies and rails overlap.

One thread copies pieces to pinned memory and starts their calls of the communicator, in program order.
Another thread waits for these calls and copies the results back. Copies run on side streams. Events order
them with the streams of the program; no thread waits for a whole device.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from railweave.errors import explain
from railweave.hosts.arrays import BFLOAT16, Array

if TYPE_CHECKING:
    from railweave.hosts.communicator import Communicator

log = logging.getLogger(__name__)

PIECE_BYTES = 8 << 20
BUFFERS = 6  # of PIECE_BYTES each: the pinned memory that a group keeps
AHEAD = 2  # pieces whose copies to pinned memory run while the thread waits for an earlier one
END_S = 10.0  # time for the threads to end
NOTHING = torch.empty(0)
HOST_RAILS = {"tcp", "rdma"}  # their order of additions depends only on the position in the tensor

Rows = Sequence[Tensor]  # parts of a flat tensor
Copies = Iterable[tuple[Tensor, Tensor]]  # target and source
Cuts = Sequence[tuple[int, int | None]]  # first column and end; None: the end of each block

# ------------------------------------------------------------ copies


class SideStreams:
    """The side streams of one GPU: one for copies to pinned memory, one for copies back."""

    def __init__(self, device: torch.device) -> None:
        """Make the streams."""
        self.device = device
        self._down, self._up = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def ready(self) -> Any:
        """Record an event on the caller's current stream, and return it."""
        return torch.cuda.current_stream(self.device).record_event()

    def load(self, ready: Any, copies: Copies) -> Any:
        """Copy to pinned memory after the event `ready`; return the event of the copies' end."""
        self._down.wait_event(ready)
        return self._copy(self._down, copies)

    def store(self, copies: Copies) -> Any:
        """Copy to the device; return the event of the copies' end."""
        return self._copy(self._up, copies)

    def _copy(self, stream: Any, copies: Copies) -> Any:
        with torch.cuda.stream(stream):
            for target, source in copies:
                target.copy_(source, non_blocking=True)
                for x in (target, source):
                    if x.is_cuda:
                        x.record_stream(stream)
            return stream.record_event(torch.cuda.Event(blocking=True))

    def join(self, event: Any) -> None:
        """Let the caller's current stream wait for an event."""
        torch.cuda.current_stream(self.device).wait_event(event)

    def future(self) -> Any:
        """Return a new future of tensors on the device."""
        return torch.futures.Future(devices=[self.device])

    def completing(self) -> Any:
        """Return a context for the completion of a future: its callbacks run behind the stores so far."""
        return torch.cuda.stream(self._up)

    def pinned(self, size: int) -> Tensor:
        """Return new pinned memory of `size` bytes."""
        with torch.cuda.device(self.device):
            return torch.empty(size, dtype=torch.uint8, pin_memory=True)


# ------------------------------------------------------------ calls


class Piece(NamedTuple):
    """The part of a tensor that one call of the communicator carries."""

    reads: Rows  # to copy to pinned memory
    writes: Rows  # to copy back
    in_place: bool  # whether the call writes where it reads
    call: Callable[[Array, Array], Any]  # from and to pinned memory; returns the pending Work


class Staged:
    """A queued call, with the interface of a communicator's Work."""

    def __init__(self, streams: SideStreams | None, pieces: Iterable[Piece]) -> None:
        """Make a queued call. Without streams it has nothing to copy."""
        self.streams = streams
        self.ready = streams.ready() if streams else None
        self.pieces = pieces
        self.error: Exception | None = None
        self._ended = threading.Event()

    def end(self) -> None:
        """Mark the call as ended: copies back are on their stream, or `error` is set. Drop its tensors."""
        self.pieces = ()
        self._ended.set()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all copies back are on their stream. Raises the call's error if it has failed.

        Raises TimeoutError after `timeout` seconds: the call goes on. The communicator's timeout ends it.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(
                explain(
                    f"the call has not completed within {timeout:g} s, and goes on",
                    "the end of the call by then",
                    "wait again with a longer timeout",
                )
            )
        if self.error is not None:
            raise self.error

    def done(self) -> bool:
        """Return whether `wait` would return at once."""
        return self._ended.is_set()


class _Step(NamedTuple):
    """A piece in pinned memory, or, without a piece, the end of a call."""

    call: Staged
    piece: Piece | None = None
    source: Tensor = NOTHING
    target: Tensor = NOTHING
    loaded: Any = None  # event
    buffer: Tensor | None = None


class Staging:
    """Makes a communicator's calls for flat CUDA tensors. Each call returns a Staged at once."""

    def __init__(
        self, comm: Communicator, make_streams: Callable[[torch.device], SideStreams] = SideStreams
    ) -> None:
        """Begin without threads; the first call starts them."""
        self._comm = comm
        self._make_streams = make_streams
        self._streams: dict[torch.device, SideStreams] = {}
        self._queue: SimpleQueue[Staged | None] = SimpleQueue()
        self._started: SimpleQueue[tuple[_Step, Any] | None] = SimpleQueue()
        # Pinned memory, allocated on first use, with the event of its last use.
        self._buffers: SimpleQueue[tuple[Tensor | None, Any]] = SimpleQueue()
        for _ in range(BUFFERS):
            self._buffers.put((None, None))
        self._lock = threading.Lock()
        self._unstarted = 0  # calls that the communicator has not got yet
        self._ahead: deque[_Step] = deque()  # loads before their calls; only the first thread uses it
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()

    def streams(self, device: torch.device) -> SideStreams:
        """Return the side streams of a device."""
        with self._lock:
            if device not in self._streams:
                self._streams[device] = self._make_streams(device)
            return self._streams[device]

    # Arguments are those of the communicator. `async_op` is always true.

    def all_reduce(self, x: Tensor, op: str, out: Tensor, **_: Any) -> Staged:
        """Reduce over all ranks."""
        return self._reduce(x, out, op, _to(partial(self._comm.all_reduce, op=op)))

    def reduce(self, x: Tensor, root: int, op: str, out: Tensor | None, **_: Any) -> Staged:
        """Reduce over all ranks to the root."""
        call = partial(self._comm.reduce, root=root, op=op)
        return self._reduce(x, out, op, _from(call) if out is None else _to(call))

    def _reduce(self, x: Tensor, out: Tensor | None, op: str, call: Callable[[Array, Array], Any]) -> Staged:
        """Put a part of every block of a ring into each piece, which keeps the order of additions."""
        blocks = self._comm.world_size
        return self._put(
            x,
            (
                Piece(rows(x, blocks, cut), () if out is None else rows(out, blocks, cut), True, call)
                for cut in self._cuts(x, x.numel() // blocks, blocks, op)
            ),
        )

    def reduce_scatter(self, x: Tensor, op: str, out: Tensor, **_: Any) -> Staged:
        """Reduce over all ranks, and give each rank a shard."""
        blocks, call = self._comm.world_size, _to(partial(self._comm.reduce_scatter, op=op))
        cuts = self._cuts(x, out.numel(), blocks + 1, op)
        return self._put(x, (Piece(rows(x, blocks, cut), rows(out, 1, cut), False, call) for cut in cuts))

    def all_gather(self, x: Tensor, out: Tensor, **_: Any) -> Staged:
        """Collect the tensors of all ranks."""
        blocks, call = self._comm.world_size, _to(self._comm.all_gather)
        cuts = self._cuts(x, x.numel(), blocks + 1)
        return self._put(x, (Piece(rows(x, 1, cut), rows(out, blocks, cut), False, call) for cut in cuts))

    def broadcast(self, x: Tensor, root: int, **_: Any) -> Staged:
        """Overwrite a tensor with the root's tensor."""
        is_root, call = root == self._comm.rank, _from(partial(self._comm.broadcast, root=root))
        parts = (rows(x, 1, cut) for cut in self._cuts(x, x.numel(), 1))
        return self._put(
            x, (Piece(part if is_root else (), () if is_root else part, True, call) for part in parts)
        )

    def behind(self, call: Callable[..., Any], **_: Any) -> Staged:
        """Queue a call of the communicator behind all queued calls."""
        return self._put(None, [Piece((), (), True, lambda *_: call(async_op=True))])

    def _cuts(self, x: Tensor, columns: int, blocks: int, op: str = "") -> Cuts:
        """Cut the columns of blocks into pieces of at most PIECE_BYTES; a block may have one more column."""
        most = max(1, PIECE_BYTES // x.element_size() // blocks - 1)
        pieces = max(1, -(-columns // most)) if self._may_cut(x.dtype, op) else 1
        ends = [*(columns * piece // pieces for piece in range(pieces)), None]
        return list(pairwise(ends))  # type: ignore[arg-type]

    def _may_cut(self, dtype: torch.dtype, op: str) -> bool:
        """Return whether a tensor may be cut into pieces.

        It may if pieces have the same sums as the whole tensor. It also may if sums differ from run to run
        anyway, because the ranks learn the split over several rails.
        """
        if not dtype.is_floating_point or op not in ("sum", "avg", "prod"):
            return True
        options = self._comm.options
        if len(options.rails) > 1 and not (options.deterministic or options.shares):
            return True
        by_hosts = {rail.kind for rail in options.rails} <= HOST_RAILS
        return by_hosts and (len(options.rails) <= 1 or self._comm.world_size == 2)

    # ------------------------------------------------------------ queues

    def busy(self) -> bool:
        """Return whether calls are queued. Further calls must then queue behind them."""
        return self._unstarted > 0 and self._process == os.getpid()

    def _put(self, x: Tensor | None, pieces: Iterable[Piece]) -> Staged:
        call = Staged(None if x is None else self.streams(x.device), pieces)
        with self._lock:
            if not self._threads:
                for name, step in (("loads", self._load_next), ("stores", self._store_next)):
                    thread = threading.Thread(
                        target=_repeat, args=(step,), name=f"railweave {name}", daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()
            self._unstarted += 1
            self._queue.put(call)
        return call

    def close(self) -> None:
        """End the threads. Queued calls fail, because the communicator has been closed before."""
        self._queue.put(None)
        end = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                log.warning("%s still waits for a GPU, %g s after its group's end", thread.name, END_S)

    # ------------------------------------------------------------ threads

    def _load_next(self) -> bool:
        """Load the next call's pieces, and start the loaded ones; return False at the end of the queue."""
        while self._ahead and self._queue.empty():
            self._start(self._ahead.popleft())
        call = self._queue.get()
        if call is None:
            while self._ahead:
                self._start(self._ahead.popleft())
            self._started.put(None)
            return False
        try:
            for piece in call.pieces:
                self._load(call, piece)
                if len(self._ahead) > AHEAD:
                    self._start(self._ahead.popleft())
        except Exception as error:
            call.error = error
        self._ahead.append(_Step(call))
        return True

    def _load(self, call: Staged, piece: Piece) -> None:
        if call.error is not None:
            return
        if call.streams is None:
            self._ahead.append(_Step(call, piece))
            return
        buffer, used = self._buffers.get()
        try:
            if used is not None:
                used.synchronize()
            if buffer is None:
                buffer = call.streams.pinned(PIECE_BYTES)
            self._ahead.append(_loaded(call, call.streams, piece, buffer))
        except BaseException:
            self._buffers.put((buffer, None))
            raise

    def _start(self, step: _Step) -> None:
        """Wait until a piece is in pinned memory, and start its call."""
        call, piece, pending = step.call, step.piece, None
        if piece is None:
            with self._lock:
                self._unstarted -= 1
        elif call.error is None:
            try:
                if step.loaded is not None:
                    step.loaded.synchronize()
                pending = piece.call(memory(step.source), memory(step.target))
            except Exception as error:
                call.error = error
        self._started.put((step, pending))

    def _store_next(self) -> bool:
        """Copy a piece back when its call has ended; return False after the last piece."""
        started = self._started.get()
        if started is None:
            return False
        step, pending = started
        call, piece, used = step.call, step.piece, step.loaded
        if piece is None:
            call.end()
            return True
        try:
            if pending is not None:
                pending.wait()
            if call.streams is not None and call.error is None and piece.writes:
                used = call.streams.store(zip(piece.writes, _split(step.target, piece.writes), strict=True))
        except Exception as error:
            call.error = error
        if call.streams is not None:
            self._buffers.put((step.buffer, used))
        return True


def _repeat(step: Callable[[], bool]) -> None:
    """Run a thread's steps. This is a separate function, so the thread holds no tensors between two steps."""
    while step():
        pass


def _to(call: Callable[..., Any]) -> Callable[[Array, Array], Any]:
    return lambda source, target: call(source, out=target, async_op=True)


def _from(call: Callable[..., Any]) -> Callable[[Array, Array], Any]:
    return lambda source, _: call(source, async_op=True)


def _loaded(call: Staged, streams: SideStreams, piece: Piece, buffer: Tensor) -> _Step:
    """Start the copy of a piece to the buffer, or to separate memory if it is longer."""
    first = (piece.reads or piece.writes)[0]
    reads = sum(x.numel() for x in piece.reads or piece.writes)
    writes = 0 if piece.in_place else sum(x.numel() for x in piece.writes)
    size = (reads + writes) * first.element_size()
    held = (buffer if size <= buffer.numel() else streams.pinned(size))[:size].view(first.dtype)
    source, target = held[:reads], held[:reads] if piece.in_place else held[reads:]
    loaded = streams.load(call.ready, zip(_split(source, piece.reads), piece.reads, strict=True))
    return _Step(call, piece, source, target, loaded, buffer)


def _split(x: Tensor, parts: Rows) -> Rows:
    """Return the views of parts in a buffer."""
    return x.split([part.numel() for part in parts]) if parts else ()


def rows(x: Tensor, blocks: int, cut: tuple[int, int | None]) -> Rows:
    """Return a range of columns of each block of a flat tensor, with the blocks of a ring.

    >>> rows(torch.arange(7), 2, (1, None))
    (tensor([1, 2]), tensor([4, 5, 6]))
    """
    first, end = cut
    if first == 0 and end is None:
        return (x,)
    begins = pairwise(x.numel() * block // blocks for block in range(blocks + 1))
    return tuple(x[begin + first : following if end is None else begin + end] for begin, following in begins)


def memory(x: Tensor) -> Array:
    """Return the memory of a flat tensor on the CPU."""
    bits = x.dtype is torch.bfloat16  # numpy has no such type
    array: Array = x.view(torch.int16).numpy().view(BFLOAT16) if bits else x.numpy()
    return array
