# SPDX-License-Identifier: Apache-2.0
"""Pipelines: tables, conditionals and what follows each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.code import Code, Label
from railweave.switch.lowering.declarations import Declarations, table_size
from railweave.switch.lowering.emit import ActionBody, emit_action
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Field
from railweave.switch.lowering.notes import note
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import (
    Json,
    check,
    find,
    get,
    hexstr,
    name_of,
    named,
    natural,
    objects,
    unsupported,
    where,
)
from railweave.switch.lowering.stale_fields import StaleFields
from railweave.switch.lowering.values import branch, compute, compute_wide
from railweave.switch.program import (
    Action,
    ConstEntry,
    DefaultAction,
    KeyField,
    Match,
    MatchType,
    TableInfo,
)

NOWHERE = ""  # a table's code does not fall through to its successor, which the plan names


@dataclass
class TableNode:
    """A table of a pipeline, ready to be lowered."""

    info: TableInfo
    key: list[Expr]
    action_ids: list[int]
    next_by_action: dict[int, str | None] = field(default_factory=dict)  # index in the table's actions
    on_hit: str | None = None
    on_miss: str | None = None
    by_hit: bool = False
    meter: tuple[int, Field] | None = None
    selector: int | None = None  # calculation that picks a member of a group

    @property
    def direct_action(self) -> int | None:
        """Return the only action that can run, if it takes no parameters: the table is a call."""
        default = self.info.default
        if self.info.key or default is None or not default.const or default.parameters or self.meter:
            return None
        return self.action_ids[self.info.action(default.action)[0]]


def pack_key(widths: list[int]) -> tuple[list[tuple[int, int]], int]:
    """Return (word, shift) of each key field, and the number of words.

    Each field of up to 64 bits lies in one word.
    """
    places: list[tuple[int, int]] = []
    free: list[tuple[int, int]] = []
    words = 0
    for width in widths:
        if width > 64:
            places.append((words, 0))
            words += -(-width // 64)
            continue
        for slot, (word, used) in enumerate(free):
            if used + width <= 64:
                places.append((word, used))
                free[slot] = (word, used + width)
                break
        else:
            places.append((words, 0))
            free.append((words, width))
            words += 1
    return places, words


def emit_key(out: Code, nodes: Sequence[Expr], key: Sequence[KeyField]) -> None:
    """Bring values to the places where lookups find them."""
    for part, node in zip(key, nodes, strict=True):
        if part.bitwidth <= 64:
            out.op("KEY" if part.shift else "KEY_SET", compute(out, node), part.word, part.shift + 1)
        else:
            out.op("W_KEY", compute_wide(out, node), part.word, part.bitwidth)


@dataclass(frozen=True)
class TableReader:
    """Reads the tables of a pipeline."""

    expressions: ExpressionReader
    declared: Declarations
    actions: dict[int, Action]  # by id
    stale: StaleFields

    def read(self, item: Json, index: int) -> TableNode:
        """Read one table."""
        name = name_of(item, "table")
        place = where(item, f"table {name!r}")
        profile, selector = self._implementation(item, place)
        keys = objects(item, "key")
        fields = [self._key_field(part, place) for part in keys]
        places, words = pack_key([width for _, _, _, width in fields])
        key = tuple(
            KeyField(part_name, match, width, word, shift)
            for (part_name, match, _, width), (word, shift) in zip(fields, places, strict=True)
        )
        if sum(part.match is MatchType.LPM for part in key) > 1:
            raise InvalidProgram(f"{place}: more than one lpm field")
        ids = self._action_ids(item, place)
        entries = item.get("entries")
        if entries is not None and profile is not None:
            raise InvalidProgram(f"{place}: const entries in a table with an action profile")
        meter_name, meters = item.get("direct_meters"), self.declared.direct_meters
        meter = None if meter_name is None else find(meters, meter_name, "direct meter", place)
        info = TableInfo(
            name=name,
            index=index,
            key=key,
            key_words=words,
            actions=tuple(self.actions[number] for number in ids),
            size=table_size(item, place),
            default=self._default(item, ids, place),
            const_entries=self._entries(entries, key, ids, place),
            immutable=entries is not None,
            direct_counter=bool(item.get("with_counters", False)),
            direct_meter=meter_name,
            profile=profile,
            idle_timeouts=bool(item.get("support_timeout", False)),
        )
        node = TableNode(info, [node for _, _, node, _ in fields], ids, selector=selector, meter=meter)
        self._following(node, item, place)
        return node

    def _action_ids(self, item: Json, place: str) -> list[int]:
        """Return the ids of the table's actions; p4c-bm gives only their names."""
        if "action_ids" in item:
            ids = [check(number, int, place) for number in get(item, "action_ids", list, place)]
        else:
            by_name = {action.name: number for number, action in reversed(self.actions.items())}
            ids = [by_name.get(check(name, str, place), -1) for name in get(item, "actions", list, place)]
        if any(number not in self.actions for number in ids):
            raise InvalidProgram(f"{place}: an action that does not exist")
        return ids

    def _implementation(self, item: Json, place: str) -> tuple[str | None, int | None]:
        """Return the table's action profile, and the calculation of its selector."""
        kind = get(item, "type", str, place)
        if kind == "simple":
            return None, None
        if kind not in {"indirect", "indirect_ws"}:
            raise unsupported(f"a table of type {kind!r}", item, place)
        name = get(item, "act_prof_name" if "act_prof_name" in item else "action_profile", str, place)
        info, selector = find(self.declared.profiles, name, "action profile", place)
        if (kind == "indirect_ws") != info.selector:
            raise InvalidProgram(f"{place}: a table of type {kind!r} with action profile {name!r}")
        return name, selector

    def _key_field(self, part: Json, place: str) -> tuple[str, MatchType, Expr, int]:
        graph, target = self.expressions.graph, part.get("target")
        kind = get(part, "match_type", str, place)
        if kind == "valid":
            member = self.expressions.headers.header(target, place).valid
            value, kind = self.expressions.load(member), "exact"
        elif isinstance(target, dict):  # a field of an element that is chosen at run time
            member = self.expressions.places(target, place)[0][1]
            value = self.expressions.number(target, place)
        else:
            member = self.expressions.headers.field(target, place)
            value = self.expressions.load(member)
        if member.variable:
            raise unsupported("a match on a variable-length field", part, place)
        if kind not in {match.value for match in MatchType}:
            raise unsupported(f"the match kind {kind!r}", part, place)
        node = graph.wrap(value, member.width, signed=False)
        if not isinstance(target, dict) and member in self.stale:
            valid = self.expressions.headers.header(member.header, place).valid
            node = graph.select(graph.to_bool(self.expressions.load(valid)), node, graph.const(0))
        if part.get("mask") is not None:
            node = graph.binary("&", node, graph.const(hexstr(part["mask"], place) & mask(member.width)))
        name = part.get("name") or f"{member.header}.{member.name}"
        return check(name, str, place), MatchType(kind), node, member.width

    def _call(self, call: Any, ids: list[int], place: str) -> tuple[str, tuple[int, ...]]:
        """Return the name of an action that the table has, and its arguments."""
        number = get(call, "action_id", int, place)
        if number not in ids:
            raise InvalidProgram(f"{place}: an entry or the default names an action that is not the table's")
        action = self.actions[number]
        values = [hexstr(value, place) for value in check(call.get("action_data", []), list, place)]
        if len(values) != len(action.parameters):
            raise InvalidProgram(f"{place}: action {action.name!r} takes {len(action.parameters)} arguments")
        widths = [parameter.bitwidth for parameter in action.parameters]
        return action.name, tuple(value & mask(width) for value, width in zip(values, widths, strict=True))

    def _default(self, item: Json, ids: list[int], place: str) -> DefaultAction | None:
        entry = item.get("default_entry")
        if entry is None:
            return None
        return DefaultAction(
            *self._call(entry, ids, place),
            const=bool(entry.get("action_entry_const", False)),
            const_action=bool(entry.get("action_const", False)),
        )

    def _entries(
        self, entries: Any, key: tuple[KeyField, ...], ids: list[int], place: str
    ) -> tuple[ConstEntry, ...]:
        if entries is None:
            return ()
        rows = [check(row, dict, place) for row in check(entries, list, place)]
        priorities = [natural(row, "priority", place) if "priority" in row else 0 for row in rows]
        lowest = max(priorities, default=0)
        result = []
        for row, priority in zip(rows, priorities, strict=True):
            parts = get(row, "match_key", list, place)
            if len(parts) != len(key):
                raise InvalidProgram(f"{place}: an entry with {len(parts)} key fields instead of {len(key)}")
            matches = tuple(self._match(part, k, place) for part, k in zip(parts, key, strict=True))
            call = self._call(get(row, "action_entry", dict, place), ids, place)
            # In BMv2 the least number wins, in P4Runtime the greatest.
            result.append(ConstEntry(matches, *call, lowest + 1 - priority))
        return tuple(result)

    @staticmethod
    def _match(part: Any, key: KeyField, place: str) -> Match:
        kind = get(part, "match_type", str, place)
        full = mask(key.bitwidth)
        if kind == "valid" and key.match is MatchType.EXACT:
            return Match(key.match, int(get(part, "key", bool, place)))
        if kind != key.match.value:
            raise InvalidProgram(
                f"{place}: an entry matches {key.name!r} as {kind}, not as {key.match.value}"
            )
        if key.match is MatchType.RANGE:
            low, high = (hexstr(part.get(end), place) & full for end in ("start", "end"))
            return Match(key.match, low, high=high)
        value = hexstr(part.get("key"), place) & full
        if key.match is MatchType.LPM:
            prefix = natural(part, "prefix_length", place, key.bitwidth + 1)
            return Match(key.match, value & ~(full >> prefix), prefix=prefix)
        if key.match is MatchType.TERNARY:
            cared = hexstr(part.get("mask"), place) & full
            return Match(key.match, value & cared, mask=cared)
        return Match(key.match, value)

    def _following(self, node: TableNode, item: Json, place: str) -> None:
        following = get(item, "next_tables", dict, place)
        for name in following.values():
            if name is not None and not isinstance(name, str):
                raise InvalidProgram(f"{place}: next_tables names no node")
        node.on_miss = item.get("base_default_next")
        if "__HIT__" in following or "__MISS__" in following:
            node.by_hit = True
            node.on_hit, node.on_miss = following.get("__HIT__"), following.get("__MISS__")
            return
        for position, action in enumerate(node.info.actions):
            node.next_by_action[position] = find(following, action.name, "next node for action", place)


class Pipeline:
    """One pipeline: reads its nodes, then emits them."""

    def __init__(self, item: Json, tables: TableReader, first_table: int) -> None:
        """Read all nodes; tables are numbered from `first_table`."""
        self.name = name_of(item, "pipeline")
        self.initial = item.get("init_table")
        self.tables: dict[str, TableNode] = {}
        for table in objects(item, "tables"):
            node = tables.read(table, first_table + len(self.tables))
            self.tables[node.info.name] = node
        self.conditionals: dict[
            str, tuple[str, Expr, str | None, str | None]
        ] = {}  # source if p4c gives it, else name; value; the nodes after true and after false
        for conditional in objects(item, "conditionals"):
            place = where(conditional, f"condition {conditional.get('name')!r}")
            condition = tables.expressions.condition(get(conditional, "expression", dict, place), place)
            following = conditional.get("true_next"), conditional.get("false_next")
            info = conditional.get("source_info")
            source = info.get("source_fragment") if isinstance(info, dict) else None
            name = name_of(conditional, place)
            self.conditionals[name] = source if isinstance(source, str) else name, condition, *following
        self.calls: dict[str, tuple[int, str | None]] = {}
        for call in objects(item, "action_calls"):
            place = where(call, f"action call {call.get('name')!r}")
            self.calls[name_of(call, place)] = (get(call, "action_id", int, place), call.get("next_node"))
        self.labels = {name: Label() for name in (*self.tables, *self.conditionals, *self.calls)}
        self.end = Label()

    def reads(self) -> list[Expr]:
        """Return every expression."""
        return [
            *(node for table in self.tables.values() for node in table.key),
            *(condition for _, condition, _, _ in self.conditionals.values()),
        ]

    def label(self, name: Any) -> Label:
        """Return the label of a node; null is the end of the pipeline."""
        return self.end if name is None else find(self.labels, name, "node", f"pipeline {self.name!r}")

    def following(self, node: TableNode) -> tuple[list[Label], Label | None, Label]:
        """Return where a table goes on: by action, on a hit (None: by action), on a miss."""
        nexts = [self.label(node.next_by_action.get(i)) for i in range(len(node.action_ids))]
        return nexts, self.label(node.on_hit) if node.by_hit else None, self.label(node.on_miss)

    def emit(self, out: Code, actions: dict[int, ActionBody]) -> Label:
        """Emit all nodes that can be reached. Return the label of the first."""
        start = self.label(self.initial)
        waiting = [self.initial]
        done: set[str] = set()
        while waiting:
            name = waiting.pop()
            while isinstance(name, str) and name not in done:
                done.add(name)
                out.place(self.label(name))
                out.scope()
                out.where = f"pipeline {self.name!r}, node {name!r}"
                following = self._node(out, name, actions)
                name, *others = following
                waiting += others
                if name == NOWHERE:
                    break
                target = self.label(name)
                if name is None or name in done:
                    out.op("JMP", 0, target)
        for label in self.labels.values():
            if label.pc is None:
                out.place(label)  # of nodes that nothing leads to
        out.place(self.end)
        out.op("END")
        return start

    def _node(self, out: Code, name: str, actions: dict[int, ActionBody]) -> list[str | None]:
        """Emit a node. Return the following nodes, first the node that its code falls through to."""
        if name in self.conditionals:
            source, condition, true_next, false_next = self.conditionals[name]
            note(out, "if", source, [("value", condition)])
            branch(out, condition, self.label(false_next), when=False)
            return [true_next, *([false_next] if false_next is not None else [])]
        if name in self.calls:
            return self._call(out, *self.calls[name], actions)
        table = self.tables[name]
        direct = table.direct_action
        if direct is not None:
            position = table.action_ids.index(direct)
            return self._call(
                out, direct, table.on_miss if table.by_hit else table.next_by_action[position], actions
            )
        emit_key(out, table.key, table.info.key)
        if out.notes is not None:
            out.op("NOTE_TABLE", 0, table.info.index)
        out.op("TABLE", 0, table.info.index)
        nexts = [table.on_hit, table.on_miss, *table.next_by_action.values()]
        return [NOWHERE, *(following for following in nexts if following is not None)]

    def _call(
        self, out: Code, number: int, following: str | None, actions: dict[int, ActionBody]
    ) -> list[str | None]:
        if number not in actions:
            raise InvalidProgram(f"{out.where}: no action {number}")
        if actions[number].exits:
            out.op("CALL", 0, actions[number].entry)  # whose RET looks whether to stop
        else:
            emit_action(out, actions[number])
        return [following]


def find_pipelines(root: Json, tables: TableReader) -> tuple[Pipeline, Pipeline]:
    """Return ingress and egress."""
    named([table for item in objects(root, "pipelines") for table in objects(item, "tables")], "table")
    items = {name_of(item, "pipelines"): item for item in objects(root, "pipelines")}
    if set(items) != {"ingress", "egress"}:
        raise unsupported(f"pipelines {sorted(items)} instead of ingress and egress", None, "pipelines")
    ingress = Pipeline(items["ingress"], tables, 0)  # whose tables come first in the plan
    return ingress, Pipeline(items["egress"], tables, len(ingress.tables))
