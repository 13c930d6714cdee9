# SPDX-License-Identifier: Apache-2.0
"""Random damage to messages, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st


def damage(message: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    """Overwrite, insert or remove bytes of a message."""
    data = bytearray(message)
    for how, place, value in changes:
        at = place % (len(data) + 1)
        if how == 0:
            data[at : at + 1] = bytes([value])
        elif how == 1:
            data.insert(at, value)
        else:
            del data[at : at + 1]
    return bytes(data)


changes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200), st.integers(0, 255)), max_size=4)
Batch = list[tuple[bytes, list[tuple[int, int, int]]]]
