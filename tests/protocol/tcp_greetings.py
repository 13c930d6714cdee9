# SPDX-License-Identifier: Apache-2.0
"""The handshake and the frames of a TCP rail, for tests that replace a rank."""

from __future__ import annotations

import itertools
import socket
import struct
import zlib

from railweave._rigs.secret import authenticate, authenticate_named, derive_key

MAGIC, VERSION = 0x52575450, 4
SAID, HELLO, PROOF = 32, 48, 16  # bytes: a hello without its code, a hello with its code, a proof
DIALS = itertools.count(1)
DATA, ABORT, GOODBYE, HEARTBEAT = 1, 2, 3, 4  # frames
HEAD, CODE = 40, 16  # bytes of a frame: before the code, and of the code


def tcp_key(secret: bytes, rail: int = 0) -> bytes:
    return derive_key(secret, "tcp", rail)


def hello(
    key: bytes,
    rank: int,
    to: int,
    *,
    size: int = 2,
    incarnation: int = 0,
    number: int | None = None,
    answered: int = 0,
    magic: int = MAGIC,
    version: int = VERSION,
) -> bytes:
    """Return a hello of `rank`. Without `number` it belongs to a new dial."""
    number = next(DIALS) if number is None else number
    said = struct.pack("!IIIIIIQ", magic, version, rank, to, size, incarnation, number)
    return said + authenticate(key, said + answered.to_bytes(8, "big"))


def number_of(greeting: bytes) -> int:
    return int.from_bytes(greeting[SAID - 8 : SAID], "big")


def is_answer(answer: bytes, key: bytes, dialled: bytes) -> bool:
    """Return whether `answer` is the right reply to the hello of a dial."""
    rank, to, size, incarnation = struct.unpack_from("!IIII", dialled, 8)
    number = number_of(answer)
    return answer == hello(
        *(key, to, rank), size=size, incarnation=incarnation, number=number, answered=number_of(dialled)
    )


def proof(key: bytes, dialled: bytes, answer: bytes) -> bytes:
    return authenticate(key, dialled[:SAID] + answer[:SAID])


def shake_hands(connection: socket.socket, key: bytes, dialled: bytes) -> list[Stream]:
    """Complete the handshake of a rank that has sent the hello `dialled`.

    Return the streams of the dialled rank and of the dialling rank. Raise AssertionError if the other end is
    not a rank.
    """
    answer = connection.recv(HELLO, socket.MSG_WAITALL)
    assert is_answer(answer, key, dialled)
    connection.sendall(proof(key, dialled, answer))
    said = dialled[:SAID] + answer[:SAID]
    return [Stream(authenticate(key, said + end[8:12])) for end in (answer, dialled)]


def label(op_index: int, count: int, dtype: int = 0, op: int = 0) -> bytes:
    """Return the label of an all-reduce."""
    return struct.pack("!IBBBBHHQQ", op_index, 0, dtype, op, 0, 0, 0, count, count)


def frame(kind: int, payload: bytes = b"", about: bytes = bytes(28), length: int | None = None) -> bytes:
    """Return a frame without its code."""
    crc = zlib.crc32(payload) if kind == DATA else 0
    return struct.pack("!BxxxII", kind, len(payload) if length is None else length, crc) + about + payload


class Stream:
    """Adds authentication codes to the frames that one end sends."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.number = 0

    def coded(self, *frames: bytes) -> bytes:
        return b"".join(map(self._coded, frames))

    def _coded(self, frame: bytes) -> bytes:
        covered = frame if frame[0] == ABORT else frame[:HEAD]
        name = struct.pack("!QI", self.number, len(covered))
        self.number += 1
        return frame[:HEAD] + authenticate_named(self.key, name, covered) + frame[HEAD:]
