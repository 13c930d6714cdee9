# SPDX-License-Identifier: Apache-2.0
"""SwitchML's endpoint on its own: refused inputs, and the stated error."""

from __future__ import annotations

import numpy as np
import pytest

from railweave import sdk

ENDPOINT = sdk.find("switchml").endpoint
JOB = sdk.Job(0, 2, 5344, 64, {"slots": 4})


@pytest.mark.parametrize(
    ("given", "text"),
    [([], "an empty vector"), ([1.0, np.nan], "nan"), ([-np.inf, 1.0], "-inf")],
)
def test_inputs_without_exponent_are_refused(given: list[float], text: str) -> None:
    with pytest.raises(ValueError, match=f"{text} was given; SwitchML expects"):
        ENDPOINT(JOB, 0).begin(np.array(given, np.float32), "sum")


def test_first_packets_of_floats_carry_only_exponents() -> None:
    endpoint = ENDPOINT(JOB, 0)
    endpoint.begin(np.full(256, 6.0, np.float32), "sum")  # 4 blocks, 2 slots
    packets = endpoint.transmit(0.0, 64)
    assert [bytes(packet[:8]).hex() for packet in packets] == ["0000000000008200", "0000000000018200"]
    assert not np.asarray(packets)[:, 8:].any()
    assert endpoint.deadline() == 0.01
    assert not len(endpoint.transmit(0.0099, 64))
    assert len(endpoint.transmit(0.01, 64)) == endpoint.resends == 2


def test_the_bound_is_half_a_unit_per_rank() -> None:
    given = [np.array([6.0], np.float32), np.array([-0.5], np.float32)]  # below 2^3, so a unit is 2^-26
    assert ENDPOINT.error_bound(given) == 2.0**-26


def test_a_block_of_zeros_does_not_coarsen_those_of_other_ranks() -> None:
    endpoint = ENDPOINT(JOB, 0)
    endpoint.begin(np.zeros(64, np.float32), "sum")
    assert bytes(endpoint.transmit(0.0, 64)[0][:8]).hex() == "0000000000000100"
