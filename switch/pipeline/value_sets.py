# SPDX-License-Identifier: Apache-2.0
"""Parser value sets."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from railweave._native.engine import NONE, Engine
from railweave.switch.errors import TableFull
from railweave.switch.pipeline.matches import Key, Match, encode, normalise
from railweave.switch.program import MatchType, Program, ValueSetInfo


class ValueSets:
    """All value sets of a pipeline, empty at first."""

    def __init__(self, program: Program, engine: Engine) -> None:
        """The sets of a program that an engine runs."""
        self._program = program
        self._engine = engine
        self._lock = threading.Lock()
        self._members: dict[str, list[tuple[Match, ...]]] = {name: [] for name in program.value_sets}
        self._handles: dict[str, list[int]] = {name: [] for name in program.value_sets}

    def members(self, name: str) -> list[tuple[Match, ...]]:
        """The members of a set."""
        self._info(name)
        with self._lock:
            return list(self._members[name])

    def set_members(self, name: str, members: Sequence[Sequence[Match]]) -> None:
        """Replace the members; each has one match, of any kind, per field of the set."""
        info = self._info(name)
        if len(members) > info.size:
            raise TableFull(f"value set {name!r} holds {info.size} members, not {len(members)}")
        keys = [_encode(info, member) for member in members]
        with self._lock:
            new: list[int] = []
            try:
                for key in keys:
                    new.append(self._engine.insert(info.index, key.value, key.mask, key.ranges, 0, NONE, []))
            except Exception:
                self._remove(info, new)
                raise
            self._remove(info, self._handles[name])
            self._handles[name] = new
            self._members[name] = [tuple(member) for member in members]

    def _remove(self, info: ValueSetInfo, handles: Sequence[int]) -> None:
        for handle in handles:
            self._engine.remove(info.index, handle)

    def _info(self, name: str) -> ValueSetInfo:
        if name not in self._program.value_sets:
            known = ", ".join(sorted(self._program.value_sets))
            raise ValueError(f"no value set {name!r}; the program has {known or 'none'}")
        return self._program.value_sets[name]


def _encode(info: ValueSetInfo, member: Sequence[Match]) -> Key:
    """A member in the engine's format: as a key whose fields match as the member says."""
    if len(member) == len(info.key):
        key = tuple(replace(part, match=match.kind) for part, match in zip(info.key, member, strict=True))
        info = replace(info, key=key)
    for part in info.key:
        if part.match is MatchType.RANGE and part.bitwidth > 64:
            raise ValueError(f"{part.name!r} has {part.bitwidth} bits: no range of up to 64 bits")
    return encode(info, normalise(info, member))
