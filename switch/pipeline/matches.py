# SPDX-License-Identifier: Apache-2.0
"""The match of an entry: made by `exact`, `lpm`, `ternary`, `range_` and `optional`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from railweave.switch.pipeline.values import Number, as_int
from railweave.switch.program import FieldMatch, KeyField, MatchType, TableInfo, ValueSetInfo

LOW64 = (1 << 64) - 1


@dataclass(frozen=True)
class Match:
    """The match of one key field."""

    kind: MatchType
    value: int = 0
    mask: int = 0
    prefix: int = 0
    high: int = 0
    wild: bool = False  # matches anything


def exact(value: Number) -> Match:
    """The field equals `value`."""
    return Match(MatchType.EXACT, as_int(value))


def lpm(value: Number, prefix: int) -> Match:
    """The first `prefix` bits of the field are those of `value`."""
    return Match(MatchType.LPM, as_int(value), prefix=prefix)


def ternary(value: Number, mask: Number) -> Match:
    """field & mask == value & mask."""
    return Match(MatchType.TERNARY, as_int(value), mask=as_int(mask))


def range_(low: Number, high: Number) -> Match:
    """low ≤ field ≤ high."""
    return Match(MatchType.RANGE, as_int(low), high=as_int(high))


def optional(value: Number | None) -> Match:
    """The field equals `value`, or is anything if that is None. (The key field is ternary to the engine.)"""
    if value is None:
        return Match(MatchType.TERNARY, wild=True)
    return Match(MatchType.TERNARY, as_int(value), mask=-1)


class Key(NamedTuple):
    """A key in the engine's format."""

    value: list[int]
    mask: list[int]
    ranges: list[tuple[int, int, int, int, int]]
    prefix: int


def normalise(info: TableInfo | ValueSetInfo, match: Sequence[Match]) -> tuple[FieldMatch, ...]:
    """Check matches against a key, and clear the bits that do not count."""
    if len(match) != len(info.key):
        raise ValueError(f"keys of {info.name!r} have {len(info.key)} fields, not {len(match)}")
    return tuple(_normalise(part, key) for part, key in zip(match, info.key, strict=True))


def _normalise(match: Match, key: KeyField) -> FieldMatch:
    full = (1 << key.bitwidth) - 1
    if match.kind is not key.match:
        raise ValueError(f"key field {key.name!r} matches {key.match.value}, not {match.kind.value}")
    if not 0 <= match.value <= full or match.high > full or match.mask > full:
        raise ValueError(f"key field {key.name!r} has {key.bitwidth} bits; the value does not fit")
    if match.kind is MatchType.LPM:
        if not 0 <= match.prefix <= key.bitwidth:
            raise ValueError(f"a prefix of {key.name!r} has 0…{key.bitwidth} bits, not {match.prefix}")
        kept = full ^ (full >> match.prefix)
        return FieldMatch(value=match.value & kept, prefix=match.prefix)
    if match.kind is MatchType.TERNARY:
        mask = 0 if match.wild else match.mask & full
        return FieldMatch(value=match.value & mask, mask=mask)
    if match.kind is MatchType.RANGE:
        if match.value > match.high:
            raise ValueError(f"the range of {key.name!r} is empty: {match.value}…{match.high}")
        return FieldMatch(value=match.value, high=match.high)
    return FieldMatch(value=match.value)


def encode(info: TableInfo | ValueSetInfo, matches: tuple[FieldMatch, ...]) -> Key:
    """Matches as words, masks and ranges of the engine's key."""
    encoded = Key([0] * info.key_words, [0] * info.key_words, [], 0)
    prefix = 0
    for match, key in zip(matches, info.key, strict=True):
        full = (1 << key.bitwidth) - 1
        if key.match is MatchType.RANGE:
            encoded.ranges.extend(_range(key, match))
            continue
        mask = full
        if key.match is MatchType.LPM:
            mask, prefix = full ^ (full >> match.prefix), match.prefix
        elif key.match is MatchType.TERNARY:
            mask = match.mask
        for i in range(key.words):
            encoded.value[key.word + i] |= ((match.value << key.shift) >> (64 * i)) & LOW64
            encoded.mask[key.word + i] |= ((mask << key.shift) >> (64 * i)) & LOW64
    return encoded._replace(prefix=prefix)


def _range(key: KeyField, match: FieldMatch) -> list[tuple[int, int, int, int, int]]:
    """A range in the engine's format: one item, or one per word of a field wider than a word."""
    if key.words == 1:
        return [(key.word, key.shift, key.bitwidth, match.value, match.high)]
    return [
        (key.word + i, 0, key.bitwidth, (match.value >> 64 * i) & LOW64, (match.high >> 64 * i) & LOW64)
        for i in range(key.words)
    ]
