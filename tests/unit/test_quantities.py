# SPDX-License-Identifier: Apache-2.0
"""Numbers that users type never raise an exception, and never become another number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave import quantities
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import Impairment

PARSERS: tuple[Callable[[str], float | None], ...] = (
    quantities.rate_bps,
    quantities.size_bytes,
    quantities.time_s,
    quantities.number,
    quantities.whole,
)
LONG = "9" * 5000  # more digits than a float or Python's limit for integers can hold


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1_0", "٣", "1e400", LONG, f"{LONG}s", f"1.{LONG}"])
def test_other_texts_are_none(parse: Callable[[str], float | None], text: str) -> None:
    assert parse(text) is None


@given(st.text("0123456789.eEKMGTnusmbit/-_ ", max_size=60))
def test_no_text_raises_an_exception(text: str) -> None:
    for parse in PARSERS:
        value = parse(text)
        assert value is None or 0 <= value < float("inf")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("0", 0), ("0.0M", 0), ("0.4", 1), ("1000T", 10**15), ("1001T", None), ("9" * 30 + "T", None)],
)
def test_only_zero_is_unshaped(text: str, rate: int | None) -> None:
    assert quantities.rate_bps(text) == rate


@pytest.mark.parametrize("value", ["loss=nan", "loss=1_0", "seed=1_000", f"rate={LONG}", f"delay={LONG}s"])
def test_an_impairment_names_the_mistake(value: str) -> None:
    with pytest.raises(SwitchError, match="; correct --impair"):
        Impairment.parse(value)
