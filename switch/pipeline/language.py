# SPDX-License-Identifier: Apache-2.0
"""Parser value sets, and the program's messages (log_msg, assert)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from railweave._native.engine import NONE
from railweave.switch.errors import TableFull
from railweave.switch.lowering.messages import fill
from railweave.switch.pipeline.base import Base
from railweave.switch.pipeline.matches import LOW64, Key, Match
from railweave.switch.program import KeyField, MatchType, Program, ValueSetInfo


class Log(NamedTuple):
    """Messages of log_msg and of failed assertions, oldest first, and how many there was no room for."""

    messages: list[str]
    lost: int


class Language(Base):
    """Value sets and messages."""

    def __init__(self, program: Program, plan: bytes) -> None:
        """All value sets are empty; messages are not collected."""
        super().__init__(program, plan)
        self._members: dict[str, list[tuple[Match, ...]]] = {name: [] for name in program.value_sets}
        self._member_handles: dict[str, list[int]] = {name: [] for name in program.value_sets}

    def value_set(self, name: str) -> list[tuple[Match, ...]]:
        """The members of a parser value set."""
        self._value_set(name)
        with self._lock:
            return list(self._members[name])

    def set_value_set(self, name: str, members: Sequence[Sequence[Match]]) -> None:
        """Replace the members; each has one match, of any kind, per field of the set."""
        info = self._value_set(name)
        if len(members) > info.size:
            raise TableFull(f"value set {name!r} holds {info.size} members, not {len(members)}")
        keys = [_encode(info, member) for member in members]
        with self._lock:
            new: list[int] = []
            try:
                for key in keys:
                    handle = self.native.insert(info.index, key.value, key.mask, key.ranges, 0, NONE, [])
                    new.append(handle)
            except Exception:
                self._remove_members(info, new)
                raise
            self._remove_members(info, self._member_handles[name])
            self._member_handles[name] = new
            self._members[name] = [tuple(member) for member in members]

    def _remove_members(self, info: ValueSetInfo, handles: Sequence[int]) -> None:
        for handle in handles:
            self.native.remove(info.index, handle)

    def _value_set(self, name: str) -> ValueSetInfo:
        if name not in self.program.value_sets:
            known = ", ".join(sorted(self.program.value_sets))
            raise ValueError(f"no value set {name!r}; the program has {known or 'none'}")
        return self.program.value_sets[name]

    def set_logging(self, on: bool) -> None:
        """Whether messages of log_msg are kept for `take_log`; failed assertions always are."""
        self.native.set_logging(on)

    def take_log(self) -> Log:
        """The program's messages since the last call."""
        records, lost = self.native.take_log()
        texts = self.program.messages
        return Log(
            [fill(texts[number], [_value(*value) for value in values]) for number, values in records], lost
        )


def _value(words: list[int], negative: bool) -> int:
    value = sum(word << (64 * position) for position, word in enumerate(words))
    return value - (1 << (64 * len(words))) if negative else value


def _encode(info: ValueSetInfo, member: Sequence[Match]) -> Key:
    """A member as words, masks and ranges of the engine's key; ValueError if it does not fit the fields."""
    if len(member) != len(info.key):
        raise ValueError(f"members of value set {info.name!r} have {len(info.key)} fields, not {len(member)}")
    encoded = Key([0] * info.key_words, [0] * info.key_words, [], 0)
    for match, key in zip(member, info.key, strict=True):
        full = (1 << key.bitwidth) - 1
        if not 0 <= match.value <= full or match.high > full or match.mask > full:
            raise ValueError(f"field {key.name!r} has {key.bitwidth} bits; the value does not fit")
        if match.kind is MatchType.RANGE:
            if match.value > match.high or key.bitwidth > 64:
                raise ValueError(f"{key.name!r}: {match.value}…{match.high} is no range of up to 64 bits")
            encoded.ranges.append((key.word, key.shift, key.bitwidth, match.value, match.high))
            continue
        mask = _mask(match, key, full)
        for i in range(key.words):
            encoded.value[key.word + i] |= ((match.value & mask) << key.shift >> (64 * i)) & LOW64
            encoded.mask[key.word + i] |= (mask << key.shift >> (64 * i)) & LOW64
    return encoded


def _mask(match: Match, key: KeyField, full: int) -> int:
    """The bits that count."""
    if match.kind is MatchType.EXACT:
        return full
    if match.kind is MatchType.TERNARY:
        return 0 if match.wild else match.mask & full
    if not 0 <= match.prefix <= key.bitwidth:
        raise ValueError(f"a prefix of {key.name!r} has 0…{key.bitwidth} bits, not {match.prefix}")
    return full ^ (full >> match.prefix)
