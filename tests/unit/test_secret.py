# SPDX-License-Identifier: Apache-2.0
"""Keys and codes equal the values in their papers."""

from __future__ import annotations

import hashlib

import pytest

from railweave._rigs.secret import authenticate, derive_key

SECRET = bytes(range(32))
# From SipHash's reference implementation (vectors.h), for the message 00 01 02 … and the key 00 01 … 0f.
SIPHASH_128 = {0: "a3817f04ba25a8e66df67214c7550293", 15: "5493e99933b0a8117e08ec0f97cfc3d9"}


@pytest.mark.parametrize(("size", "code"), SIPHASH_128.items())
def test_codes_are_siphash_of_128_bits(size: int, code: str) -> None:
    assert authenticate(SECRET[:16], SECRET[:size]).hex() == code


def test_keys_are_blake2b_of_purpose_and_part() -> None:
    def expected(purpose: bytes, part: int) -> bytes:
        message = purpose + b"\0" + part.to_bytes(8, "little")
        return hashlib.blake2b(message, digest_size=16, key=SECRET).digest()

    assert derive_key(SECRET, "tcp", 3) == expected(b"tcp", 3)
    assert derive_key(SECRET, "tcp") == expected(b"tcp", 0)


def test_a_secret_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="31 bytes; expected 32"):
        derive_key(SECRET[:31], "tcp")
