# SPDX-License-Identifier: Apache-2.0
"""Matches of key fields: made by `exact`, `lpm`, `ternary`, `range_` and `optional`, checked, and encoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from railweave.switch.errors import OutOfRange
from railweave.switch.pipeline.values import LOW64, Number, as_int
from railweave.switch.program import KeyField, Match, MatchType, TableInfo, ValueSetInfo

_ALL = -1  # the mask of a field of any width


def exact(value: Number) -> Match:
    """Match a field that equals `value`."""
    return Match(MatchType.EXACT, as_int(value))


def lpm(value: Number, prefix: int) -> Match:
    """Match a field whose first `prefix` bits are those of `value`."""
    return Match(MatchType.LPM, as_int(value), prefix=prefix)


def ternary(value: Number, mask: Number) -> Match:
    """Match field & mask == value."""
    return Match(MatchType.TERNARY, as_int(value), mask=as_int(mask))


def range_(low: Number, high: Number) -> Match:
    """Match low ≤ field ≤ high."""
    return Match(MatchType.RANGE, as_int(low), high=as_int(high))


def optional(value: Number | None) -> Match:
    """Match a field that equals `value`, or any field (None). The key field is ternary to the engine."""
    if value is None:
        return Match(MatchType.TERNARY)
    return Match(MatchType.TERNARY, as_int(value), mask=_ALL)


class Key(NamedTuple):
    """A key in the engine's format."""

    value: list[int]
    mask: list[int]
    ranges: list[tuple[int, int, int, int, int]]
    prefix: int


def check(info: TableInfo | ValueSetInfo, match: Sequence[Match]) -> tuple[Match, ...]:
    """Return the matches of a key; ValueError or OutOfRange if it cannot have them."""
    if len(match) != len(info.key):
        raise ValueError(f"keys of {info.name!r} have {len(info.key)} fields, not {len(match)}")
    return tuple(_check(part, key) for part, key in zip(match, info.key, strict=True))


def _check(match: Match, key: KeyField) -> Match:
    full = (1 << key.bitwidth) - 1
    if match.kind is not key.match:
        raise ValueError(f"key field {key.name!r} matches {key.match.value}, not {match.kind.value}")
    if match.mask == _ALL:
        match = match._replace(mask=full)
    numbers = match.value, match.mask, match.high
    if min(numbers) < 0 or max(numbers) > full:
        raise OutOfRange(f"key field {key.name!r} has {key.bitwidth} bits; the value does not fit")
    if not 0 <= match.prefix <= key.bitwidth:
        raise ValueError(f"a prefix of {key.name!r} has 0…{key.bitwidth} bits, not {match.prefix}")
    if match.kind is MatchType.RANGE:
        if match.value > match.high:
            raise ValueError(f"the range of {key.name!r} is empty: {match.value}…{match.high}")
    elif match.value & ~_mask(match, full):
        raise ValueError(f"{key.name!r}: bits outside the mask or prefix must be zero")
    return match


def _mask(match: Match, full: int) -> int:
    """Return the bits that a match compares, in a field whose bits are `full`."""
    if match.kind is MatchType.LPM:
        return full ^ (full >> match.prefix)
    return match.mask if match.kind is MatchType.TERNARY else full


def encode(info: TableInfo | ValueSetInfo, matches: tuple[Match, ...]) -> Key:
    """Return checked matches as words, masks and ranges of the engine's key."""
    encoded = Key([0] * info.key_words, [0] * info.key_words, [], 0)
    prefix = 0
    for match, key in zip(matches, info.key, strict=True):
        if match.kind is MatchType.RANGE:
            encoded.ranges.extend(_range(key, match))
            continue
        mask = _mask(match, (1 << key.bitwidth) - 1)
        prefix += match.prefix
        for i in range(key.words):
            encoded.value[key.word + i] |= ((match.value << key.shift) >> (64 * i)) & LOW64
            encoded.mask[key.word + i] |= ((mask << key.shift) >> (64 * i)) & LOW64
    return encoded._replace(prefix=prefix)


def _range(key: KeyField, match: Match) -> list[tuple[int, int, int, int, int]]:
    """Return a range in the engine's format: one item per 64-bit word of the field."""
    if key.words == 1:
        return [(key.word, key.shift, key.bitwidth, match.value, match.high)]
    return [
        (key.word + i, 0, key.bitwidth, (match.value >> 64 * i) & LOW64, (match.high >> 64 * i) & LOW64)
        for i in range(key.words)
    ]
