# SPDX-License-Identifier: Apache-2.0
"""Sizes, rates, loss and shares as people type them: sizes binary (1K = 1024), rates decimal (1M = 10^6)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from railweave.experiments.errors import OptionError
from railweave.quantities import rate_bps, size_bytes

MIN_RATE_BPS = 100_000
MAX_RATE_BPS = 400 * 10**9
MAX_SIZE = 1 << 30


def parse_size(text: str) -> int:
    """Return bytes: `4M`, `1K`, `256`, `16MiB`.

    >>> parse_size("4M")
    4194304
    """
    size = size_bytes(text)
    if size is None:
        raise OptionError(
            f"size {text!r}", "a whole number of bytes with K, M or G, such as 4M", "correct the size"
        )
    if not 4 <= size <= MAX_SIZE or size % 4:
        raise OptionError(
            f"size {text!r}",
            "a multiple of 4 bytes from 4 to 1G, since elements have 4 bytes",
            "correct the size",
        )
    return size


def parse_sizes(text: str) -> list[int]:
    """Return the sizes of a sweep: one (`4M`), a list (`1K,4M`), or powers of two in a range (`1K:16M`).

    >>> parse_sizes("1K:8K")
    [1024, 2048, 4096, 8192]
    """
    sizes: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        size, end = parse_size(first), parse_size(last if colon else first)
        if size > end:
            raise OptionError(
                f"sizes {part!r}: the first is larger than the last", "SMALLEST:LARGEST", "swap them"
            )
        while size <= end:
            sizes.append(size)
            size *= 2
    return sizes


def parse_rate(text: str) -> int:
    """Return bit/s: `100M`, `2.5G`; `0` is unshaped.

    >>> parse_rate("100M")
    100000000
    """
    rate = rate_bps(text)
    if rate is None:
        raise OptionError(
            f"rate {text!r}",
            "a number with K, M, G or T, such as 100M, or 0 for unshaped",
            "correct the rate",
        )
    if rate and not MIN_RATE_BPS <= rate <= MAX_RATE_BPS:
        raise OptionError(f"rate {text!r}", "100K to 400G bit/s, or 0 for unshaped", "correct the rate")
    return rate


def parse_rates(text: str) -> list[int]:
    """Return one rate, or one per plane: `100M,50M,0`."""
    return [parse_rate(part) for part in text.split(",")]


def parse_rails(text: str) -> list[str]:
    """Return the rails' kinds: `ina,tcp,rdma`. The topology checks whether they exist."""
    rails = [part.strip() for part in text.split(",") if part.strip()]
    if not rails:
        raise OptionError("no rails are given", "a list such as ina,tcp,rdma", "name one rail at least")
    return rails


def parse_loss(text: str, planes: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return the probability of loss by plane, given the planes as (name, kind).

    One number is for the `ina` and `rdma` planes, which carry datagrams; `ina=0.01,rdma=0` chooses planes.
    """
    if "=" not in text:
        probability = _probability(text)
        return {name: probability for name, kind in planes if kind != "tcp" and probability}
    values = _by_name("loss", text, dict(planes))
    if on_tcp := [name for name, kind in planes if kind == "tcp" and name in values]:
        raise OptionError(
            f"loss {text!r} on the tcp plane {on_tcp[0]}",
            "an ina or rdma plane, which carry datagrams",
            "name another plane",
        )
    return {name: _probability(value) for name, value in values.items()}


def _probability(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 0.5:
        raise OptionError(f"loss {text!r}", "a probability from 0 to 0.5, such as 0.01", "correct the loss")
    return value


def parse_shares(text: str | None, rails: Sequence[str]) -> dict[str, float] | None:
    """Return the share of each rail: `0.5,0.3,0.2` in the order of the rails, or `ina=2,tcp=1` ."""
    if text is None:
        return None
    parts = text.split(",")
    if "=" in text:
        values = _by_name("shares", text, rails)
    elif len(parts) == len(rails):
        values = dict(zip(rails, parts, strict=True))
    else:
        raise OptionError(
            f"shares {text!r}: {len(parts)} numbers",
            f"{len(rails)}, one per rail ({', '.join(rails)})",
            "correct the shares",
        )
    shares = {rail: _number(values.get(rail, "0")) for rail in rails}
    total = sum(shares.values())
    if not 0 < total < math.inf or min(shares.values()) < 0:
        raise OptionError(
            f"shares {text!r}", "numbers of at least 0 that are not all 0", "correct the shares"
        )
    return {rail: share / total for rail, share in shares.items()}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _by_name(what: str, text: str, names: Collection[str]) -> dict[str, str]:
    """Return the values of `NAME=VALUE,…`. Raise OptionError for an unknown name."""
    pairs = [part.partition("=") for part in text.split(",")]
    values = {name.strip(): value.strip() for name, _, value in pairs}
    if unknown := [name for name in values if name not in names]:
        raise OptionError(
            f"{what} {text!r}: {unknown[0]!r}", f"one of {', '.join(names)}", "correct the name"
        )
    return values


def format_rate(bps: float) -> str:
    """Return `94.1 Mbit/s`."""
    for unit, scale in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= scale:
            return f"{bps / scale:.4g} {unit}"
    return f"{bps:.4g} bit/s"


def format_bytes(count: float) -> str:
    """Return `4.0 MiB`."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def number_text(value: float, digits: int) -> str:
    """Return a number with that many significant digits; large numbers are whole, as in `76,670`."""
    return f"{value:,.0f}" if 10**digits - 0.5 <= abs(value) < math.inf else f"{value:.{digits}g}"
