# SPDX-License-Identifier: Apache-2.0
"""A parser value set."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from railweave._native.engine import NONE, Engine
from railweave.switch.errors import DuplicateEntry, TableFull
from railweave.switch.pipeline.matches import check, encode
from railweave.switch.program import Match, MatchType, ValueSetInfo


class ValueSet:
    """A value set, empty at first. A member has one match, of any kind, per field of the set."""

    def __init__(self, info: ValueSetInfo, engine: Engine) -> None:
        """Serve the set with this index of an engine."""
        self._info = info
        self._engine = engine
        self._lock = threading.Lock()
        self._handles: dict[tuple[Match, ...], int] = {}  # of the members

    def members(self) -> list[tuple[Match, ...]]:
        """Return the members, in the order in which they were given."""
        with self._lock:
            return list(self._handles)

    def set_members(self, members: Sequence[Sequence[Match]]) -> None:
        """Replace the members."""
        name, size = self._info.name, self._info.size
        if len(members) > size:
            raise TableFull(f"value set {name!r} holds {size} members, not {len(members)}")
        checked = [self._check(member) for member in members]
        if len(set(checked)) < len(checked):
            raise DuplicateEntry(f"a member of value set {name!r} is given twice")
        with self._lock:
            new: dict[tuple[Match, ...], int] = {}
            try:
                for member in checked:
                    key = encode(self._info, member)
                    new[member] = self._engine.insert(
                        self._info.index, key.value, key.mask, key.ranges, 0, NONE, []
                    )
            except Exception:
                self._remove(new)
                raise
            self._remove(self._handles)
            self._handles = new

    def snapshot(self) -> Self:
        """Return the members as they are now, to be read only: `set_members` replaces them as a whole."""
        return copy.copy(self)

    def _remove(self, handles: dict[tuple[Match, ...], int]) -> None:
        for handle in handles.values():
            self._engine.remove(self._info.index, handle)

    def _check(self, member: Sequence[Match]) -> tuple[Match, ...]:
        """Return the member; ValueError unless fields of the set can match so."""
        info = self._info
        if len(member) == len(info.key):
            key = tuple(replace(part, match=match.kind) for part, match in zip(info.key, member, strict=True))
            info = replace(info, key=key)
        for part in info.key:
            if part.match is MatchType.RANGE and part.bitwidth > 64:
                raise ValueError(f"{part.name!r} has {part.bitwidth} bits: no range of up to 64 bits")
        return check(info, member)
