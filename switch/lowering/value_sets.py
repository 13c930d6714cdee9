# SPDX-License-Identifier: Apache-2.0
"""Parser value sets: tables of the engine without actions, of which only hit or miss counts."""

from __future__ import annotations

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.control import TableNode, pack_key
from railweave.switch.lowering.source import MAX_BITS, Json, get, named, natural, objects, unsupported
from railweave.switch.program import KeyField, MatchType, TableInfo, ValueSetInfo

MAX_MEMBERS = 1 << 20


class ValueSets:
    """All value sets; the parser's states define their members' fields."""

    def __init__(self, root: Json, first_index: int) -> None:
        """Read the program's value sets; the sets that are used are numbered from `first_index`."""
        self._declared: dict[str, Json] = {}
        for name, place, item in named(objects(root, "parse_vsets"), "value set"):
            natural(item, "compressed_bitwidth", place, MAX_BITS + 1)
            self._declared[name] = item
        self.found: dict[str, ValueSetInfo] = {}
        self._first_index = first_index

    def read(self, item: Json, widths: list[int], place: str) -> ValueSetInfo:
        """Return the set that a transition names; `widths` are those of the key's fields, in bits."""
        if item.get("mask") is not None:
            raise unsupported("a value set with a mask", item, place)
        name = get(item, "value", str, place)
        declared = self._declared.get(name)
        if declared is None:
            raise InvalidProgram(f"{place}: no value set {name!r}")
        if sum(widths) != declared["compressed_bitwidth"]:
            raise InvalidProgram(f"{place}: value set {name!r} has members of another width than {widths}")
        places, words = pack_key(widths)
        key = tuple(
            KeyField(f"{name}.{number}", MatchType.TERNARY, width, word, shift)
            for number, (width, (word, shift)) in enumerate(zip(widths, places, strict=True))
        )
        info = self.found.get(name)
        if info is None:
            size = natural(declared, "max_size", place, MAX_MEMBERS) if "max_size" in declared else 1024
            info = ValueSetInfo(name, self._first_index + len(self.found), key, words, size)
            self.found[name] = info
        elif info.key != key:
            raise InvalidProgram(f"{place}: value set {name!r} is used with keys of different shapes")
        return info


def as_table(info: ValueSetInfo) -> TableNode:
    """Return the value set as the engine's table without actions."""
    size = 2 * info.size  # new members come in before the old ones go
    return TableNode(TableInfo(info.name, info.index, info.key, info.key_words, (), size), [], [])
