# SPDX-License-Identifier: Apache-2.0
"""Sizes, rates, loss and shares in the form that users type."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from railweave.experiments import units
from railweave.experiments.errors import OptionError

PLANES = [("ina", "ina"), ("tcp", "tcp"), ("rdma", "rdma")]
RAILS = ["ina", "tcp", "rdma"]
REFUSED: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "size": (units.parse_size, ["", "M", "-4", "4.5M", "0", "2", "6", "2G", "1T", "four"]),
    "rate": (units.parse_rate, ["", "fast", "-1M", "5", "1000T", "1e9"]),
    "loss": (
        lambda text: units.parse_loss(text, PLANES),
        ["1%", "-0.1", "0.6", "nan", "ina=x", "ib=0.1", "tcp=0.1"],
    ),
    "shares": (
        lambda text: units.parse_shares(text, RAILS),
        ["1,2", "1,2,3,4", "0,0,0", "-1,1,1", "a,b,c", "nan,1,1", "ib=1", "ina=x", "ina=1,2"],
    ),
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in REFUSED for text in REFUSED[name][1]])
def test_what_makes_no_sense_is_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=name):
        REFUSED[name][0](text)


@pytest.mark.parametrize(
    ("text", "size"), [("4M", 4 << 20), ("1k", 1024), ("256", 256), ("16MiB", 16 << 20), ("1G", 1 << 30)]
)
def test_sizes_are_binary(text: str, size: int) -> None:
    assert units.parse_size(text) == size


def test_sweeps() -> None:
    assert units.parse_sizes("1K:4K,16M") == [1024, 2048, 4096, 16 << 20]
    assert units.parse_sizes("1K:3K") == [1024, 2048]
    with pytest.raises(OptionError, match="swap them"):
        units.parse_sizes("4M:1K")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100M", 10**8), ("2.5G", 25 * 10**8), ("0", 0), ("100000000", 10**8), ("1Gbit/s", 10**9)],
)
def test_rates_are_decimal(text: str, rate: int) -> None:
    assert units.parse_rate(text) == rate


def test_one_loss_is_for_planes_of_datagrams() -> None:
    assert units.parse_loss("0.01", PLANES) == {"ina": 0.01, "rdma": 0.01}
    assert units.parse_loss("0", PLANES) == {}
    assert units.parse_loss("ina=0.1,rdma=0", PLANES) == {"ina": 0.1, "rdma": 0.0}


def test_shares_are_scaled_to_one() -> None:
    assert units.parse_shares(None, RAILS) is None
    assert units.parse_shares("2,1,1", RAILS) == {"ina": 0.5, "tcp": 0.25, "rdma": 0.25}
    assert units.parse_shares("tcp=3, ina=1", RAILS) == {"ina": 0.25, "tcp": 0.75, "rdma": 0.0}


def test_numbers_for_people() -> None:
    assert units.format_rate(94.12e6) == "94.12 Mbit/s"
    assert units.format_rate(0) == "0 bit/s"
    assert units.format_bytes(4 << 20) == "4.0 MiB"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.9876, "1.99"),
        (187.6, "188"),
        (999.6, "1,000"),
        (76_670, "76,670"),
        (math.inf, "inf"),
        (-5000, "-5,000"),
    ],
)
def test_large_numbers_are_whole(value: float, text: str) -> None:
    assert units.number_text(value, 3) == text
