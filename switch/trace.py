# SPDX-License-Identifier: Apache-2.0
"""Traces of packets: the steps of the program for a packet, and the reason if it was dropped.

A traced packet runs a second plan of the program on the same tables and registers. That plan is lowered
without fusion and with trace notes. Packets cost nothing extra while no trace runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from railweave._native.engine import NONE, TRACE_KINDS, TRACE_REASONS
from railweave.switch.lowering.code import Note
from railweave.switch.program import KeyField, TableInfo

Json = dict[str, Any]
Words = Sequence[int]

INSTANCES = {
    0: "normal",
    1: "ingress clone",
    2: "egress clone",
    4: "recirculated",
    5: "replicated",
    6: "resubmitted",
}
# How kinds of events are printed; {name} and the values.
WORDS = {
    "state": "parser state {name}",
    "extract": "extract {name}",
    "action": "action {name}({values})",
    "if": "if {name}: {truth}",
    "set": "set {name} = {value}",
    "checksum": "update checksum {name} = {value}",
    "register read": "register read {name}[{index}]",
    "register write": "register write {name}[{index}] = {value}",
    "call": "{name}({values})",
    "deparse": "deparse {headers}",
    "received": "received on port {port}, {bytes} bytes",
    "parsed": "parsed {bytes} bytes{error}",
    "resubmit": "resubmit with field list {list}",
    "recirculate": "recirculate {bytes} bytes with field list {list}",
    "clone": "clone to session {session}: {copies}",
    "multicast": "multicast to group {group}: {copies}",
    "digest": "digest {name}",
    "queued": "queued at port {port}, packets before it: {packets}; the trace ends here",
    "egress": "egress to port {port}, {instance}, rid {rid}",
    "dropped": "dropped: {reason}",
    "aborted": "given up: {reason}",
    "emitted": "emitted on port {port}, {bytes} bytes",
}


@dataclass(frozen=True)
class Event:
    """An event: its kind, the name of its object (if it has a name), and values by name."""

    kind: str
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> Json:
        """Return the event as one flat object."""
        return {"event": self.kind, **({"name": self.name} if self.name else {}), **self.values}


@dataclass(frozen=True)
class Trace:
    """The events of one packet and of its copies, in order."""

    events: tuple[Event, ...]

    def json(self) -> Json:
        """Return the trace as JSON values, also for `render`."""
        return {"events": [event.json() for event in self.events]}

    def __str__(self) -> str:
        """Return text for the terminal."""
        return render(self.json())


def render(trace: Json) -> str:
    """Return a trace's JSON as text with a line for every event; inner events are indented."""
    outer = {"received", "parsed", "queued", "egress", "emitted", "dropped", "aborted"}
    outer |= {"resubmit", "recirculate"}
    lines = []
    for event in trace["events"]:
        indent = "" if event["event"] in outer else "  "
        lines.append(indent + _line(event))
    return "\n".join(lines)


def _line(event: Json) -> str:
    kind, name = event["event"], event.get("name", "")
    values = {key: value for key, value in event.items() if key not in {"event", "name"}}
    if kind == "table":
        return _table_line(name, values)
    shown: Json = {"error": "", **values, "name": name}
    if kind == "action":
        shown["values"] = ", ".join(f"{key}={_number(value)}" for key, value in values.items())
    elif kind == "call":
        shown["values"] = ", ".join(_number(value) for value in values["arguments"])
    elif kind == "if":
        shown["truth"] = "yes" if values["value"] else "no"
    elif kind == "deparse":
        shown["headers"] = ", ".join(values["headers"]) or "nothing"
    elif kind == "parsed":
        shown["error"] = f", error {values['error']}" if values["error"] != "NoError" else ""
    elif kind in {"clone", "multicast"}:
        shown["copies"] = f"{values['copies']} copies" if values["copies"] else "there is none"
    elif kind in {"set", "checksum", "register read", "register write"}:
        shown |= {key: _number(value) for key, value in values.items()}
    if kind in WORDS:
        return WORDS[kind].format_map(shown)
    return " ".join([kind, *([name] if name else []), *(_number(value) for value in values.values())])


def _table_line(name: str, values: Json) -> str:
    key = ", ".join(f"{part}={_number(value)}" for part, value in values["key"].items())
    entry = f"hit, entry {values['entry']}" if values["entry"] else "miss"
    group = f", group {values['group']}" if "group" in values else ""
    return f"table {name}: {key or 'no key'}: {entry}{group} -> {values['action'] or 'no action'}"


def _number(value: int) -> str:
    return str(value) if -1000 < value < 1000 else hex(value)


class Reader:
    """Makes events of the engine's records, with the names of the program."""

    def __init__(
        self,
        tables: Sequence[TableInfo],
        notes: Sequence[Note],
        errors: Mapping[int, str],
        digests: Mapping[int, str],
    ) -> None:
        """Take tables by index, names of parser errors by number, and names of digests by list."""
        self._tables = {table.index: table for table in tables}
        self._notes = notes
        self._errors = errors
        self._digests = digests

    def trace(self, recorded: Sequence[tuple[int, int, Sequence[tuple[Words, bool]]]]) -> Trace:
        """Return one packet's trace."""
        return Trace(tuple(self._events(recorded)))

    def _events(self, recorded: Sequence[tuple[int, int, Sequence[tuple[Words, bool]]]]) -> Iterator[Event]:
        for kind, what, values in recorded:
            name = TRACE_KINDS[kind]
            if name == "note":
                yield self._note(self._notes[what], [number_of(*value) for value in values])
            elif name == "lookup":
                yield self._lookup(self._tables[what], [words for words, _ in values])
            else:
                yield self._traffic(name, what, [number_of(*value) for value in values])

    @staticmethod
    def _note(note: Note, values: Sequence[int]) -> Event:
        if note.kind == "deparse":
            return Event(
                "deparse", "", {"headers": [n for n, on in zip(note.labels, values, strict=True) if on]}
            )
        if note.kind == "call":
            return Event("call", note.name, {"arguments": list(values)})
        return Event(note.kind, note.name, dict(zip(note.labels, values, strict=True)))

    @staticmethod
    def _lookup(table: TableInfo, values: Sequence[Words]) -> Event:
        key, (handle,), (action,), _, (group,) = values
        found: Json = {
            "key": {part.name: _key_value(part, key) for part in table.key},
            "entry": handle or None,
        }
        found["action"] = None if action >= len(table.actions) else table.actions[action].name
        if group != NONE:
            found["group"] = group
        return Event("table", table.name, found)

    def _traffic(self, kind: str, what: int, values: Sequence[int]) -> Event:
        if kind == "digest":
            return Event(kind, self._digests[what])
        shown: Json = {"list": what, "bytes": values[0] if values else None}
        if kind in {"received", "emitted"}:
            shown = {"port": what, "bytes": values[0]}
        elif kind == "parsed":
            shown = {"bytes": values[0], "error": self._errors.get(what, str(what))}
        elif kind == "queued":
            shown = {"port": what, "packets": values[0]}
        elif kind == "egress":
            shown = {"port": what, "instance": INSTANCES.get(values[0], str(values[0])), "rid": values[1]}
        elif kind in {"dropped", "aborted"}:
            shown = {"reason": TRACE_REASONS[what]}
        elif kind in {"clone", "multicast"}:
            shown = {"session" if kind == "clone" else "group": what, "copies": values[0]}
        return Event(kind, "", {name: value for name, value in shown.items() if value is not None})


def number_of(words: Words, negative: bool = False) -> int:
    """Return the number in 64-bit words, least significant first, in two's complement if `negative`."""
    value = sum(word << (64 * place) for place, word in enumerate(words))
    return value - (1 << (64 * len(words))) if negative else value


def _key_value(part: KeyField, words: Words) -> int:
    return (number_of(words[part.word :]) >> part.shift) & ((1 << part.bitwidth) - 1)
