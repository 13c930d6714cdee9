# SPDX-License-Identifier: Apache-2.0
"""Rates, sizes and times as people type them: rates decimal (1M = 10^6), sizes binary (1K = 1024)."""

from __future__ import annotations

import re

MOST_RATE_BPS = 10**15  # far above every link, and below the limits of 64 bits
TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# At most 30 digits, so that every value is finite and callers can refuse large values with their own message.
_WHOLE = r"\d{1,30}"
_DECIMALS = rf"{_WHOLE}(?:\.{_WHOLE})?"
_RATE = re.compile(rf"({_DECIMALS})\s*([KMGT]?)(?:bit/s|bps|bit)?", re.ASCII | re.IGNORECASE)
_SIZE = re.compile(rf"({_WHOLE})\s*([KMG]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_TIME = re.compile(rf"({_DECIMALS})\s*({'|'.join(TIMES)})", re.ASCII)
_NUMBER = re.compile(rf"{_DECIMALS}(?:e-?\d{{1,2}})?", re.ASCII | re.IGNORECASE)


def rate_bps(text: str) -> int | None:
    """Return the bit/s of a rate, such as `100M` or `2.5Gbit/s`; None if the text is no rate of a link.

    >>> rate_bps("100M"), rate_bps("fast")
    (100000000, None)
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        return None
    rate = float(match[1]) * _DECIMAL[match[2].upper()]
    if rate > MOST_RATE_BPS:
        return None
    return max(1, round(rate)) if rate else 0  # 0 means unshaped: a slow rate is not 0


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size, such as `4M` or `16MiB`; None if the text is no size.

    >>> size_bytes("4M"), size_bytes("4.5M")
    (4194304, None)
    """
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _BINARY[match[2].upper()] if match else None


def number(text: str) -> float | None:
    """Return a number from 0 on, such as `0.5` or `1e-3`; None for any other text.

    >>> number("1e-3"), number("nan")
    (0.001, None)
    """
    return float(text) if _NUMBER.fullmatch(text.strip()) else None


def whole(text: str) -> int | None:
    """Return a whole number from 0 on; None for any other text.

    >>> whole("7"), whole("-7")
    (7, None)
    """
    return int(text) if re.fullmatch(_WHOLE, text.strip(), re.ASCII) else None


def time_s(text: str) -> float | None:
    """Return the seconds of a time with its unit, such as `1.5ms`; None if the text is no time.

    >>> time_s("2s"), time_s("2")
    (2.0, None)
    """
    match = _TIME.fullmatch(text.strip())
    return float(match[1]) * TIMES[match[2]] if match else None
