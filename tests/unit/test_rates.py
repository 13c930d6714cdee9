# SPDX-License-Identifier: Apache-2.0
"""Rates from options, and the lower rates for BMv2."""

from __future__ import annotations

import pytest

from railweave.commands.common import BMV2_RATE_BPS, rates_of

RAILS = ["ina", "tcp"]
FULL = 100_000_000


@pytest.mark.parametrize(
    ("rate", "target", "rates"),
    [
        (None, "embedded", [FULL, FULL]),
        (None, "bmv2", [BMV2_RATE_BPS, FULL]),
        ("100M", "embedded", [FULL, FULL]),
        ("1M", "bmv2", [1_000_000, 1_000_000]),
        ("2M,0", "bmv2", [2_000_000, 0]),
        ("1M,2M,3M", "bmv2", [1_000_000, 2_000_000, 3_000_000]),  # too many: the topology refuses them
    ],
)
def test_rates(rate: str | None, target: str, rates: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert rates_of(rate, RAILS, target) == rates
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("rate", "asked"), [("100M", "100 Mbit/s"), ("0,100M", "no limit")])
def test_what_bmv2_cannot_carry_is_lowered_with_a_note(
    rate: str, asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rates_of(rate, RAILS, "bmv2") == [BMV2_RATE_BPS, FULL]
    assert capsys.readouterr().err == (
        f"railweave: an ina plane on BMv2 is limited to 8 Mbit/s ({asked} was requested)\n"
    )
