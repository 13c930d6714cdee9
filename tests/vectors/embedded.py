# SPDX-License-Identifier: Apache-2.0
"""The embedded engine as a target, in this process, on a clock that counts microseconds per packet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

from vectors import steps
from vectors.steps import Frames, MatchValues, Packet, Step, Values

from railweave.switch import compiler
from railweave.switch.pipeline import (
    Match,
    MeterConfig,
    Pipeline,
    Replica,
    WeightedAction,
    exact,
    lpm,
    range_,
    ternary,
)
from railweave.switch.program import KeyField, MatchType, TableInfo


class Embedded:
    """A loaded pipeline, interpreted or compiled."""

    def __init__(self, pipeline: Pipeline, *, compiled: bool = False) -> None:
        self.pipeline = pipeline
        if compiled:
            compiler.compiled(pipeline.native)
        self._now_us = 0

    def packets(self, batch: Sequence[Packet]) -> list[Frames]:
        """Packets one after the other; what left because of each, sorted by port."""
        return [self._packet(packet) for packet in batch]

    def _packet(self, packet: Packet) -> Frames:
        self._now_us += 10
        frames = self.pipeline.inject(packet.port, bytes.fromhex(packet.data), self._now_us)
        return sorted(((port, data.hex()) for port, data in frames), key=lambda frame: frame[0])

    @singledispatchmethod
    def do(self, step: Step) -> Any:
        """Do one step; its result."""
        raise TypeError(f"the embedded engine cannot do {step}")

    @do.register
    def _(self, step: Packet) -> Any:
        return self._packet(step)

    @do.register
    def _(self, step: steps.Insert) -> None:
        table, matches = self._key(step.table, step.match)
        if step.action is not None:
            name, arguments = self._call(table, step.action, step.params)
            self.pipeline.tables.insert(table.name, matches, name, arguments, step.priority)
            return
        actions = [
            WeightedAction(name, tuple(arguments), weight)
            for name, arguments, weight in (
                (*self._call(table, name, params), weight) for name, params, weight in step.one_shot
            )
        ]
        self.pipeline.tables.insert(
            table.name,
            matches,
            priority=step.priority,
            member=step.member,
            group=step.group,
            action_set=actions or None,
        )

    @do.register
    def _(self, step: steps.Modify) -> None:
        table, matches = self._key(step.table, step.match)
        name, arguments = self._call(table, step.action, step.params)
        self.pipeline.tables.modify(table.name, self._handle(table, matches, step.priority), name, arguments)

    @do.register
    def _(self, step: steps.Delete) -> None:
        table, matches = self._key(step.table, step.match)
        self.pipeline.tables.delete(table.name, self._handle(table, matches, step.priority))

    @do.register
    def _(self, step: steps.Default) -> None:
        table = self._table(step.table)
        self.pipeline.tables.set_default(table.name, *self._call(table, step.action, step.params))

    @do.register
    def _(self, step: steps.Member) -> None:
        profile = _full(step.profile, self.pipeline.program.profiles)
        action = self.pipeline.program.actions[_full(step.action, self.pipeline.program.actions)]
        arguments = [step.params[parameter.name] for parameter in action.parameters]
        self.pipeline.profiles.insert_member(profile, step.member, action.name, arguments)

    @do.register
    def _(self, step: steps.Group) -> None:
        profile = _full(step.profile, self.pipeline.program.profiles)
        members = [(member, weight) for member, weight in step.members]
        self.pipeline.profiles.insert_group(profile, step.group, members, step.max_size or len(members))

    @do.register
    def _(self, step: steps.Multicast) -> None:
        self.pipeline.replication.set_group(step.group, [Replica(*replica) for replica in step.replicas])

    @do.register
    def _(self, step: steps.CloneSession) -> None:
        replicas = [Replica(*replica) for replica in step.replicas]
        self.pipeline.replication.set_session(step.session, replicas, packet_length=step.bytes)

    @do.register
    def _(self, step: steps.ValueSet) -> None:
        name = _full(step.name, self.pipeline.program.value_sets)
        key = self.pipeline.program.value_sets[name].key
        members = [
            [_match(part, text) for part, text in zip(key, member.values(), strict=True)]
            for member in step.members
        ]
        self.pipeline.value_sets.set_members(name, members)

    @do.register
    def _(self, step: steps.Meter) -> None:
        name = _full(step.name, self.pipeline.program.meters)
        self.pipeline.arrays.set_meters(name, range(step.index, step.index + 1), _rates(step))

    @do.register
    def _(self, step: steps.DirectMeter) -> None:
        table, matches = self._key(step.table, step.match)
        handle = self._handle(table, matches, step.priority)
        self.pipeline.tables.set_direct_meter(table.name, handle, _rates(step))

    @do.register
    def _(self, step: steps.Counter) -> list[int]:
        name = _full(step.name, self.pipeline.program.counters)
        return list(self.pipeline.arrays.counter(name, step.index))

    @do.register
    def _(self, step: steps.DirectCounter) -> list[int]:
        table, matches = self._key(step.table, step.match)
        return list(
            self.pipeline.tables.direct_counter(table.name, self._handle(table, matches, step.priority))
        )

    @do.register
    def _(self, step: steps.Digests) -> list[list[str]]:
        return [
            [f"{value:x}" for value in digest.values]
            for digest in self.pipeline.digests()
            if digest.name == step.name or digest.name.endswith(f".{step.name}")
        ]

    def _table(self, name: str) -> TableInfo:
        return self.pipeline.program.tables[_full(name, self.pipeline.program.tables)]

    def _key(self, name: str, values: MatchValues) -> tuple[TableInfo, list[Match]]:
        table = self._table(name)
        unknown = set(values) - {key.name for key in table.key}
        if unknown:
            raise ValueError(f"table {table.name!r} has no key fields {unknown}")
        return table, [_match(key, values.get(key.name)) for key in table.key]

    def _handle(self, table: TableInfo, matches: Sequence[Match], priority: int) -> int:
        handle = self.pipeline.tables.find(table.name, matches, priority)
        if handle is None:
            raise ValueError(f"table {table.name!r} has no entry {matches}")
        return handle

    @staticmethod
    def _call(table: TableInfo, action: str, params: Values) -> tuple[str, list[int]]:
        actions = {action.name: action for action in table.actions}
        name = _full(action, actions)
        return name, [params[parameter.name] for parameter in actions[name].parameters]


def _full(suffix: str, names: Mapping[str, Any] | Iterable[str]) -> str:
    """The one name that is or ends with the suffix."""
    found = [name for name in names if name == suffix] or [n for n in names if n.endswith(f".{suffix}")]
    if len(found) != 1:
        raise ValueError(f"{suffix!r} names {found or 'nothing'}; there are {', '.join(names)}")
    return found[0]


def _match(key: KeyField, text: int | str | None) -> Match:
    """The part of a key, from what a step says."""
    full = (1 << key.bitwidth) - 1
    if text is None:
        wild = {MatchType.LPM: lpm(0, 0), MatchType.TERNARY: ternary(0, 0), MatchType.RANGE: range_(0, full)}
        return wild[key.match]
    value, sign, other = re.fullmatch(r"(\w+)(/&|/|\.\.\.)?(\w+)?", str(text)).groups()  # type: ignore[union-attr]
    number, second = int(value, 0), int(other or "0", 0)
    if key.match is MatchType.EXACT:
        return exact(number)
    if key.match is MatchType.LPM:
        return lpm(number, second if sign else key.bitwidth)
    if key.match is MatchType.RANGE:
        return range_(number, second if sign else number)
    if sign == "/":
        second = full ^ (full >> second)
    return ternary(number, second if sign else full)


def _rates(step: steps.Meter | steps.DirectMeter) -> MeterConfig:
    return MeterConfig(step.cir, step.cburst, step.pir, step.pburst)
