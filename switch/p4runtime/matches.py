# SPDX-License-Identifier: Apache-2.0
"""Keys of table entries: P4Runtime's FieldMatch to the pipeline's matches and back.

Both directions keep the specification's canonical form: a field that matches everything is left out,
bits outside a mask or prefix are zero, fields stand in the table's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import require, unimplemented
from railweave.switch.pipeline import Match, exact, lpm, optional, range_, ternary
from railweave.switch.program import FieldMatch

_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}
_ANYTHING = {
    "lpm": lambda width: lpm(0, 0),
    "ternary": lambda width: ternary(0, 0),
    "range": lambda width: range_(0, (1 << width) - 1),
    "optional": lambda width: optional(None),
}
_WITH_PRIORITY = {p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL}


def needs_priority(table: p4i.Table) -> bool:
    """Whether entries can overlap, so that a priority must order them."""
    return any(field.match_type in _WITH_PRIORITY for field in table.match_fields)


def decode(name: str, fields: Iterable[p4i.MatchField], matches: Iterable[p4r.FieldMatch]) -> list[Match]:
    """One match per key field of table (or value set) `name`, in order; Refused for what it cannot match."""
    given: dict[int, p4r.FieldMatch] = {}
    for match in matches:
        require(match.field_id not in given, f"match field {match.field_id} is given twice")
        given[match.field_id] = match
    decoded = [_decode_field(name, field, given.pop(field.id, None)) for field in fields]
    require(not given, f"{name} has no match fields {sorted(given)}; ids start at 1")
    return decoded


def encode(fields: Iterable[p4i.MatchField], matches: Sequence[FieldMatch]) -> list[p4r.FieldMatch]:
    """The canonical FieldMatches of an entry."""
    encoded = (_encode_field(field, match) for field, match in zip(fields, matches, strict=True))
    return [field for field in encoded if field is not None]


def _decode_field(name: str, field: p4i.MatchField, match: p4r.FieldMatch | None) -> Match:
    what = f"{name} field {field.name}"
    kind = _KINDS.get(field.match_type)
    if kind is None:
        raise unimplemented(
            f"{what}: match type {field.other_match_type or field.match_type} is not supported"
        )
    if match is None:
        require(kind != "exact", f"{what}: an exact field must be given")
        return _ANYTHING[kind](field.bitwidth)
    given = match.WhichOneof("field_match_type")
    require(given == kind, f"{what}: matches by {kind}, not by {given}")
    width = field.bitwidth
    if kind == "exact":
        return exact(bytestrings.decode(match.exact.value, width, what))
    if kind == "optional":
        return optional(bytestrings.decode(match.optional.value, width, what))
    if kind == "lpm":
        return _decode_lpm(match.lpm, width, what)
    if kind == "ternary":
        return _decode_ternary(match.ternary, width, what)
    return _decode_range(match.range, width, what)


def _decode_lpm(given: p4r.FieldMatch.LPM, width: int, what: str) -> Match:
    value = bytestrings.decode(given.value, width, what)
    require(0 < given.prefix_len <= width, f"{what}: prefix length {given.prefix_len} is not in 1…{width}")
    require(
        value & ((1 << (width - given.prefix_len)) - 1) == 0, f"{what}: bits beyond the prefix must be zero"
    )
    return lpm(value, given.prefix_len)


def _decode_ternary(given: p4r.FieldMatch.Ternary, width: int, what: str) -> Match:
    value = bytestrings.decode(given.value, width, what)
    mask = bytestrings.decode(given.mask, width, what)
    require(mask != 0, f"{what}: a field that matches everything must be left out")
    require(value & ~mask == 0, f"{what}: bits outside the mask must be zero")
    return ternary(value, mask)


def _decode_range(span: p4r.FieldMatch.Range, width: int, what: str) -> Match:
    low = bytestrings.decode(span.low, width, what)
    high = bytestrings.decode(span.high, width, what)
    require(low <= high, f"{what}: range from {low} to {high} is empty")
    require(high - low != (1 << width) - 1, f"{what}: a field that matches everything must be left out")
    return range_(low, high)


def _encode_field(field: p4i.MatchField, match: FieldMatch) -> p4r.FieldMatch | None:
    encoded = p4r.FieldMatch(field_id=field.id)
    full = (1 << field.bitwidth) - 1
    kind = _KINDS[field.match_type]
    if kind == "exact":
        encoded.exact.value = bytestrings.encode(match.value)
        return encoded
    if kind == "range":
        encoded.range.low = bytestrings.encode(match.value)
        encoded.range.high = bytestrings.encode(match.high)
        return None if match.value == 0 and match.high == full else encoded
    if kind == "lpm":
        encoded.lpm.value = bytestrings.encode(match.value)
        encoded.lpm.prefix_len = match.prefix
        return encoded if match.prefix else None
    if kind == "optional":
        encoded.optional.value = bytestrings.encode(match.value)
    else:
        encoded.ternary.value = bytestrings.encode(match.value)
        encoded.ternary.mask = bytestrings.encode(match.mask)
    return encoded if match.mask else None
