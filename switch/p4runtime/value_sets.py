# SPDX-License-Identifier: Apache-2.0
"""Parser value sets (specification, section 9.6): replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from railweave.switch.p4runtime import matches
from railweave.switch.p4runtime.errors import require
from railweave.switch.p4runtime.schema import Entities, Kind


class ValueSets(Entities):
    """All value sets of a pipeline, which keeps their members."""

    def write(self, kind: Kind, message: p4r.ValueSetEntry) -> None:
        """MODIFY a value set: the given members replace all others."""
        require(kind == p4r.Update.MODIFY, "value sets can only be modified")
        info = self._schema.value_sets[message.value_set_id]
        name = info.preamble.name
        require(name in self._pipeline.value_sets, f"no parser state of the program uses {name}")
        members = [matches.decode(name, info.match, member.match) for member in message.members]
        self._pipeline.value_sets[name].set_members(members)

    def read(self, pattern: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
        """Yield one value set, or all (id 0)."""
        for info in self._schema.value_sets.chosen(pattern.value_set_id):
            message = p4r.ValueSetEntry(value_set_id=info.preamble.id)
            found = self._pipeline.value_sets.get(info.preamble.name)  # None: no parser state uses it
            for member in found.members() if found else ():
                message.members.add(match=matches.encode(info.match, member))
            yield p4r.Entity(value_set_entry=message)
