# SPDX-License-Identifier: Apache-2.0
"""A link in shared memory between two processes, of which one may be hostile."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from railweave._rigs.ports import SHARED_LINK_FRAMES, SHARED_LINK_MAX_FRAME, SharedLink

NAME = f"test-{os.getpid()}"
INTERFACE = f"shm:{NAME}"
PATH = Path("/dev", "shm") / f"railweave-{NAME}"


@pytest.fixture(autouse=True)
def _no_file() -> Iterator[None]:
    yield
    gc.collect()  # the traceback of a refusal refers to ends
    left = PATH.exists()
    PATH.unlink(missing_ok=True)
    assert not left


def test_frames_pass_in_both_directions_and_in_order() -> None:
    ends = SharedLink(INTERFACE), SharedLink(INTERFACE)
    for sender, receiver in (ends, ends[::-1]):
        for lap in range(3):
            frames = [os.urandom(random.randrange(1, SHARED_LINK_MAX_FRAME + 1)) for _ in range(500 - lap)]
            assert all(sender.send(frame) for frame in frames)
            assert list(iter(receiver.receive, None)) == frames


def test_a_full_ring_takes_no_frame() -> None:
    sender, receiver = SharedLink(INTERFACE), SharedLink(INTERFACE)
    assert [sender.send(b"frame") for _ in range(SHARED_LINK_FRAMES + 1)] == [True] * SHARED_LINK_FRAMES + [
        False
    ]
    assert receiver.receive() == b"frame"
    assert sender.send(b"frame")


def test_a_link_has_two_ends_and_a_free_one_can_be_taken() -> None:
    first, second = SharedLink(INTERFACE), SharedLink(INTERFACE)
    assert refused() == errno.EBUSY
    assert second.send(b"before the new end")
    del first
    third = SharedLink(INTERFACE)
    assert third.receive() is None
    assert second.send(b"after")
    assert third.receive() == b"after"
    assert third.send(b"back")
    assert second.receive() == b"back"


def test_a_frame_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        SharedLink(INTERFACE).send(bytes(SHARED_LINK_MAX_FRAME + 1))


def test_the_file_is_private_and_of_this_user() -> None:
    link = SharedLink(INTERFACE)
    assert PATH.stat().st_mode & 0o777 == 0o600
    del link
    PATH.touch(0o644)
    assert refused() == errno.EPERM
    PATH.unlink()
    PATH.symlink_to("/dev/null")
    assert refused() == errno.ELOOP
    PATH.unlink()
    PATH.touch(0o600)
    os.truncate(PATH, 1 << 30)
    assert refused() == errno.EINVAL
    PATH.unlink()


def refused() -> int | None:
    with pytest.raises(OSError, match=INTERFACE) as refusal:
        SharedLink(INTERFACE)
    return refusal.value.errno


def test_a_hostile_end_cannot_make_a_frame_of_other_memory() -> None:
    link = SharedLink(INTERFACE)
    generator = random.Random(1)
    with PATH.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for _ in range(2000):
            for _ in range(20):  # indices and sizes are whole words
                at = 4 * generator.randrange(len(memory) // 4)
                memory[at : at + 4] = generator.randbytes(4)
            for ring in (0, len(memory) // 2):
                memory[ring : ring + 4] = memory[ring + 64 : ring + 68] = generator.choice(
                    (bytes(4), b"\xff" * 4, generator.randbytes(4))
                )
            frame = link.receive()
            assert frame is None or len(frame) <= SHARED_LINK_MAX_FRAME
            link.send(b"frame")


def test_a_claimed_size_beyond_the_slot_is_no_frame() -> None:
    victim, other = SharedLink(INTERFACE), SharedLink(INTERFACE)
    assert other.send(b"frame")
    with PATH.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        place = memory.find(b"frame")
        memory[place - 4 : place] = (SHARED_LINK_MAX_FRAME + 1).to_bytes(4, "little")
    assert victim.receive() == b""
    assert victim.receive() is None
    assert other.send(b"next")
    assert victim.receive() == b"next"
