# SPDX-License-Identifier: Apache-2.0
"""Parser value sets: tables of the engine without actions, of which only hit or miss counts."""

from __future__ import annotations

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.code import Label
from railweave.switch.lowering.control import TableNode, emit_key, pack_key
from railweave.switch.lowering.emit import Emitter
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    distinct,
    get,
    natural,
    objects,
    unsupported,
    where,
)
from railweave.switch.program import KeyField, MatchType, TableInfo, ValueSetInfo

MAX_MEMBERS = 1 << 20


class ValueSets:
    """All value sets; the parser's states define their members' fields."""

    def __init__(self, root: Json) -> None:
        """Read what the program declares."""
        self._declared: dict[str, Json] = {}
        for item in distinct(objects(root, "parse_vsets"), "parser value set"):
            place = where(item, f"value set {item['name']!r}")
            natural(item, "compressed_bitwidth", place, MAX_BITS + 1)
            self._declared[item["name"]] = item
        self.found: dict[str, ValueSetInfo] = {}
        self.first_index = 0  # behind the tables

    def emit(self, out: Emitter, key: list[tuple[Expr, int]], item: Json, target: Label, place: str) -> None:
        """Go to `target` if the set that a transition names has the key."""
        if item.get("mask") is not None:
            raise unsupported("a value set behind a mask", item, place)
        info = self._info(get(item, "value", str, place), [width for _, width in key], place)
        emit_key(out, [node for node, _ in key], info.key)
        member = out.fresh()
        out.op("MEMBER", member, info.index)
        out.op("JNZ", member, target)

    def _info(self, name: str, widths: list[int], place: str) -> ValueSetInfo:
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
            info = ValueSetInfo(name, self.first_index + len(self.found), key, words, size)
            self.found[name] = info
        elif info.key != key:
            raise InvalidProgram(f"{place}: value set {name!r} is used with keys of different shapes")
        return info


def as_table(info: ValueSetInfo) -> TableNode:
    """The value set as the table that it is to the engine: without actions."""
    table = TableInfo(
        name=info.name,
        index=info.index,
        key=info.key,
        key_words=info.key_words,
        actions=(),
        size=2 * info.size,  # new members come in before the old ones go
        default=None,
        const_entries=(),
        immutable=False,
        direct_counter=False,
        direct_meter=None,
    )
    return TableNode(table, [], [])
