# SPDX-License-Identifier: Apache-2.0
"""Stateless rules of the P4Runtime specification, for values, matches, weights and rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import p4i, p4r

INVALID, UNKNOWN, EXISTS = "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS"
DENIED, FULL, IN_USE = "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"
OUT_OF_RANGE, UNSUPPORTED = "OUT_OF_RANGE", "UNIMPLEMENTED"
INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
PORT_BITS, INSTANCE_BITS = 9, 16  # of v1model
MAX_GROUP, MAX_SESSION = (1 << 16) - 1, (1 << 15) - 1
MAX_WEIGHTS = 1 << 16  # of a group, on this target
MAX_STRING = 256  # bytes, on this target
ORDERED = {p4i.MatchField.TERNARY, p4i.MatchField.RANGE, p4i.MatchField.OPTIONAL}  # by priority

Key = tuple[Any, ...]
State = dict[Key, p4r.Entity]


@dataclass
class Judgement:
    """The codes that the specification permits for an update, and the changes that OK stands for."""

    must: set[str] = field(default_factory=set)  # OK is not permitted
    may: set[str] = field(default_factory=set)  # codes beside OK or `must`
    changes: dict[Key, p4r.Entity | None] = field(default_factory=dict)

    @property
    def permitted(self) -> set[str]:
        """Return the permitted codes."""
        return (self.must or {"OK"}) | self.may

    def require(self, condition: object, *codes: str) -> None:
        """Demand one of the codes unless the condition holds."""
        if not condition:
            self.must.update(codes)


def _number(verdict: Judgement, data: bytes, width: int, *, signed: bool = False) -> int:
    value = int.from_bytes(data, "big", signed=signed)
    fits = -(1 << width - 1) <= value < 1 << width - 1 if signed else value < 1 << width
    verdict.require(data and fits, OUT_OF_RANGE, INVALID)  # sections 8.3 and 9.1.1
    return value


def shortest(verdict: Judgement, data: bytes, width: int, *, signed: bool = False) -> bytes:
    """Return the canonical form of a bytestring. A width of 0 stands for a string."""
    if width == 0:
        well_formed = data.decode(errors="ignore").encode() == data
        verdict.require(0 < len(data) <= MAX_STRING and well_formed, INVALID, UNKNOWN)
        return data
    value = _number(verdict, data, width, signed=signed)
    bits = (value if value >= 0 else ~value).bit_length() + signed
    return value.to_bytes(max(1, (bits + 7) // 8), "big", signed=signed)


def matched(
    verdict: Judgement, fields: Iterable[p4i.MatchField], given: Iterable[p4r.FieldMatch]
) -> list[p4r.FieldMatch]:
    """Return matches in the canonical form, in the order of the fields."""
    known, found = {one.id: one for one in fields}, {}
    for match in given:
        verdict.require(match.field_id in known and match.field_id not in found, INVALID)
        if match.field_id in known:
            found[match.field_id] = _match(verdict, known[match.field_id], match)
    for one in fields:
        verdict.require(one.id in found or one.match_type != p4i.MatchField.EXACT, INVALID)
    return [found[one.id] for one in fields if one.id in found]


def _match(verdict: Judgement, of: p4i.MatchField, match: p4r.FieldMatch) -> p4r.FieldMatch:
    kind = p4i.MatchField.MatchType.Name(of.match_type).lower()
    verdict.require(match.WhichOneof("field_match_type") == kind, INVALID)
    canonical = p4r.FieldMatch(field_id=match.field_id)
    given, into = getattr(match, kind), getattr(canonical, kind)
    values = {}
    for part in (part.name for part in given.DESCRIPTOR.fields if part.type == part.TYPE_BYTES):
        if of.bitwidth:
            values[part] = _number(verdict, getattr(given, part), of.bitwidth)
        setattr(into, part, shortest(verdict, getattr(given, part), of.bitwidth))
    full = (1 << of.bitwidth) - 1
    if kind == "lpm":
        length = into.prefix_len = given.prefix_len
        verdict.require(0 < length <= of.bitwidth, INVALID)
        verdict.require(not values["value"] & (full >> min(max(length, 0), of.bitwidth)), INVALID)
    elif kind == "ternary":
        verdict.require(values["mask"] and not values["value"] & ~values["mask"], INVALID)
    elif kind == "range":
        low, high = values["low"], values["high"]
        verdict.require(low <= high and (low, high) != (0, full), INVALID)
    return canonical


def check_weight(verdict: Judgement, profile: p4i.ActionProfile, weight: int) -> None:
    """Check the weight of a member of a group or set."""
    verdict.require(weight == 0 if profile.weights_disallowed else weight > 0, INVALID)
    most = profile.sum_of_members.max_member_weight
    verdict.require(not most or weight <= most, INVALID)


def size_of(verdict: Judgement, profile: p4i.ActionProfile, given: Iterable[Any]) -> int:
    """Return the size of a group or set, as its profile counts it."""
    weights = [one.weight for one in given]
    if sum(weights) > MAX_WEIGHTS:
        verdict.may.add(FULL)
    return len(weights) if profile.HasField("sum_of_members") else sum(weights)


def copy_watched_port(verdict: Judgement, given: Any, into: Any) -> None:
    """Copy a watched port. A target refuses ports that it lacks, which a model does not know."""
    for name in ("watch", "watch_port"):
        into.ClearField(name)
    if given.watch:
        into.watch = given.watch
        verdict.require(given.watch > 0, INVALID)
    elif given.watch_port:
        into.watch_port = shortest(verdict, given.watch_port, PORT_BITS)
    if given.watch or given.watch_port:
        verdict.may.add(INVALID)


def check_counts(verdict: Judgement, data: p4r.CounterData) -> None:
    """Check the value of a counter."""
    verdict.require(data.packet_count >= 0 and data.byte_count >= 0, INVALID)


def check_rates(verdict: Judgement, meter: Any, config: p4r.MeterConfig) -> None:
    """Check the configuration of a meter."""
    numbers = (config.cir, config.cburst, config.pir, config.pburst, config.eburst)
    verdict.require(min(numbers) >= 0 and config.cir <= config.pir, INVALID)
    three = meter.spec.type == p4i.MeterSpec.SINGLE_RATE_THREE_COLOR
    if meter.spec.type != p4i.MeterSpec.TWO_RATE_THREE_COLOR:
        verdict.require((config.pir, config.pburst) == (config.cir, config.cburst), INVALID)
    verdict.require(not config.eburst, UNSUPPORTED if three else INVALID)


def check_replicas(verdict: Judgement, replicas: Iterable[p4r.Replica]) -> None:
    """Check replicas and make them canonical."""
    pairs = []
    for one in replicas:
        verdict.require(not one.backup_replicas, UNSUPPORTED, INVALID)
        verdict.require(one.instance < 1 << INSTANCE_BITS, INVALID)
        port = one.egress_port
        if one.WhichOneof("port_kind") == "port":
            port = _number(verdict, one.port, PORT_BITS)
            one.port = shortest(verdict, one.port, PORT_BITS)
        verdict.require(port < 1 << PORT_BITS, INVALID, OUT_OF_RANGE)
        if port == 0:
            verdict.may.add(INVALID)
        pairs.append((port, one.instance))
    verdict.require(len(set(pairs)) == len(pairs), INVALID)
