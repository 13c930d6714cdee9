# SPDX-License-Identifier: Apache-2.0
"""Keys of table entries and members of value sets: P4Runtime's FieldMatch to the pipeline's matches and back.

A field that matches everything is left out. Fields stand in the P4Info's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import require, unimplemented
from railweave.switch.pipeline import Match, exact, lpm, optional, range_, ternary

_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}
_MAKE: Mapping[str, Callable[..., Match]] = {
    "exact": exact,
    "lpm": lpm,
    "ternary": ternary,
    "range": range_,
    "optional": optional,
}
_PARTS = {  # of a FieldMatch's message, in the order that _MAKE takes them, and of a Match
    "exact": {"value": "value"},
    "lpm": {"value": "value", "prefix_len": "prefix"},
    "ternary": {"value": "value", "mask": "mask"},
    "range": {"low": "value", "high": "high"},
    "optional": {"value": "value"},
}
_ANYTHING: Mapping[str, Callable[[int], Match]] = {
    "lpm": lambda width: lpm(0, 0),
    "ternary": lambda width: ternary(0, 0),
    "range": lambda width: range_(0, (1 << width) - 1),
    "optional": lambda width: optional(None),
}


def decode(
    name: str, fields: Iterable[p4i.MatchField], matches: Iterable[p4r.FieldMatch]
) -> tuple[Match, ...]:
    """Return one match per key field of table (or value set) `name`, in order, for the pipeline to check.

    Refused for fields that the P4Info lacks, or that match in another way.
    """
    given: dict[int, p4r.FieldMatch] = {}
    for match in matches:
        require(match.field_id not in given, f"match field {match.field_id} is given twice")
        given[match.field_id] = match
    decoded = tuple(_decode_field(name, field, given.pop(field.id, None)) for field in fields)
    require(not given, f"{name} has no match fields {sorted(given)}; ids start at 1")
    return decoded


def encode(fields: Iterable[p4i.MatchField], matches: Sequence[Match]) -> Iterable[p4r.FieldMatch]:
    """Yield the canonical FieldMatches of an entry."""
    for field, match in zip(fields, matches, strict=True):
        kind = _KINDS[field.match_type]
        if kind != "exact" and match == _ANYTHING[kind](field.bitwidth):
            continue
        encoded = p4r.FieldMatch(field_id=field.id)
        for name, source in _PARTS[kind].items():
            value = getattr(match, source)
            setattr(getattr(encoded, kind), name, value if source == "prefix" else bytestrings.encode(value))
        yield encoded


def _decode_field(name: str, field: p4i.MatchField, given: p4r.FieldMatch | None) -> Match:
    what = f"{name} field {field.name}"
    kind = _KINDS.get(field.match_type)
    if kind is None:
        raise unimplemented(
            f"{what}: match type {field.other_match_type or field.match_type} is not supported"
        )
    if given is None:
        require(kind != "exact", f"{what}: an exact field must be given")
        return _ANYTHING[kind](field.bitwidth)
    named = given.WhichOneof("field_match_type")
    require(named == kind, f"{what}: matches by {kind}, not by {named}")
    parts = (getattr(getattr(given, kind), part) for part in _PARTS[kind])
    numbers = [part if isinstance(part, int) else bytestrings.number(part, what) for part in parts]
    match = _MAKE[kind](*numbers)
    everything = kind != "exact" and match == _ANYTHING[kind](field.bitwidth)
    require(not everything, f"{what}: a field that matches everything must be left out")
    return match
