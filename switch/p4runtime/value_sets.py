# SPDX-License-Identifier: Apache-2.0
"""Parser value sets (specification, section 9.6): replaced as a whole, read back as they were written."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import matches
from railweave.switch.p4runtime.errors import already_exists, exhausted, require
from railweave.switch.p4runtime.schema import Kind, Schema
from railweave.switch.pipeline import Match, Pipeline


class ValueSets:
    """All value sets of a pipeline."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """They are empty."""
        self._schema = schema
        self._pipeline = pipeline
        self._written: dict[int, p4r.ValueSetEntry] = {}

    def snapshot(self) -> ValueSets:
        """The value sets as they are now, to be read only."""
        view = copy.copy(self)
        view._written = dict(self._written)
        return view

    def write(self, kind: Kind, message: p4r.ValueSetEntry) -> None:
        """MODIFY: the members given replace all that were there."""
        require(kind == p4r.Update.MODIFY, "value sets can only be modified")
        info = self._schema.value_sets[message.value_set_id]
        name = info.preamble.name
        if len(message.members) > info.size:
            raise exhausted(f"{name} holds {info.size} members, not {len(message.members)}")
        members = [self._member(info, member) for member in message.members]
        if len(set(members)) < len(members):
            raise already_exists(f"a member of {name} is given twice")
        self._pipeline.value_sets.set_members(name, members)
        self._written[message.value_set_id] = copy.deepcopy(message)

    def read(self, pattern: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        """One value set, or all (id 0)."""
        for one in self._schema.value_sets.chosen(pattern.value_set_id):
            number = one.preamble.id
            empty = p4r.ValueSetEntry(value_set_id=number)
            yield p4r.Entity(value_set_entry=self._written.get(number, empty))

    @staticmethod
    def _member(info: p4i.ValueSet, member: p4r.ValueSetMember) -> tuple[Match, ...]:
        return tuple(matches.decode(info.preamble.name, info.match, member.match))
