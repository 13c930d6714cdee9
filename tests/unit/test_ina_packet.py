# SPDX-License-Identifier: Apache-2.0
"""The aggregation packet's codec, and its constants, which equal those in the P4 program."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave._rigs import ina
from railweave.p4src.config import CONFIG

FIELDS = {
    "version": 4,
    "kind": 4,
    "op": 8,
    "group": 16,
    "child": 8,
    "flags": 8,
    "slot": 16,
    "round": 32,
    "mark": 32,
}
NAMES = {
    "VERSION": "INA_VERSION",
    "UDP_PORT": "INA_UDP_PORT",
    "HEADER_BYTES": "INA_HEADER_BYTES",
}
OF_HOSTS = {"MAX_WORLD_SIZE", "WIDE_LANES", "SEAL_LANES", "LEAST_SPREAD_CHUNKS", "SPREAD_CODE_BYTES"}
CONSTANTS = [name for name in dir(ina) if name.isupper() and name not in OF_HOSTS]


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_those_of_the_p4_program(name: str) -> None:
    assert getattr(ina, name) == CONFIG[NAMES.get(name, name)]


@given(st.fixed_dictionaries({name: st.integers(0, 2**bits - 1) for name, bits in FIELDS.items()}))
def test_header_is_as_documented_and_comes_back(fields: dict[str, int]) -> None:
    first = fields["version"] << 4 | fields["kind"]
    rest = [fields[name] for name in list(FIELDS)[2:]]
    encoded = ina.Header(**fields).encode()
    assert encoded == struct.pack(">BBHBBHII", first, *rest)
    decoded = ina.Header.decode(encoded)
    assert {name: getattr(decoded, name) for name in FIELDS} == fields


def test_a_short_header_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        ina.Header.decode(bytes(15))
