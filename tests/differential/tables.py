# SPDX-License-Identifier: Apache-2.0
"""Random tables: keys of all kinds, actions with parameters, profiles, and entries that packets hit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from differential.expressions import Variable
from differential.shape import Shape
from differential.statements import Block, Writer
from vectors.steps import Call, Step

KINDS = ("exact", "exact", "lpm", "ternary", "range", "optional")
NARROW = 8  # bits of most keys, so that packets hit


@dataclass(frozen=True)
class Action:
    """A generated action."""

    name: str
    params: tuple[Variable, ...]
    body: Block

    def arguments(self, rng: random.Random) -> dict[str, int]:
        """Return random values of the parameters."""
        return {p.name: rng.choice((0, (1 << p.width) - 1, rng.getrandbits(p.width))) for p in self.params}


@dataclass(frozen=True)
class Key:
    """One field of a key."""

    name: str
    kind: str
    width: int

    def match(self, rng: random.Random) -> int | str | None:
        """Return a random value for an entry, or None if the entry matches anything."""
        value = rng.randrange(16) if rng.random() < 0.8 and self.width > 3 else rng.getrandbits(self.width)
        if self.kind == "exact":
            return value
        if rng.random() < 0.2:
            return None
        if self.kind == "lpm":
            length = rng.randint(1, self.width)
            return f"{value >> (self.width - length) << (self.width - length)}/{length}"
        if self.kind == "ternary":
            mask = rng.getrandbits(self.width) | rng.getrandbits(self.width) & 15 or 1
            return f"{value & mask}/&{mask}"
        if self.kind == "range":
            low, high = sorted((value, rng.randrange(1 << self.width)))
            return f"{low}...{high}" if high - low < (1 << self.width) - 1 else None
        return value


@dataclass(frozen=True)
class Table:
    """A generated table."""

    name: str
    keys: tuple[tuple[str, Key], ...]  # expression and field
    actions: tuple[Action, ...]
    default: Action
    profile: str = ""  # "", "action_profile" or "action_selector"
    counted: bool = False

    @classmethod
    def some(cls, shape: Shape, writer: Writer, name: str, actions: tuple[Action, ...]) -> Table:
        """Return a random table."""
        rng = writer.scope.rng
        keys, lpm = [], False
        for number in range(rng.randint(1, 3)):
            kind = rng.choice([kind for kind in KINDS if kind != "lpm" or not lpm])
            lpm |= kind == "lpm"
            expression, width = _key(writer, kind)
            keys.append((expression, Key(f"k{number}", kind, width)))
        profile = rng.choice(("action_profile", "action_selector")) if shape.features.selector else ""
        if profile:
            keys = [(expression, key) for expression, key in keys if key.kind != "optional"] or keys[:1]
        return cls(name, tuple(keys), actions, rng.choice(actions), profile, rng.random() < 0.4)

    @property
    def needs_priority(self) -> bool:
        """Whether its entries have priorities."""
        return any(key.kind in {"ternary", "range", "optional"} for _, key in self.keys)

    def text(self, selector: list[str]) -> str:
        """Return the declarations of the table, its counter and its profile."""
        key = "".join(f'            {e}: {k.kind} @name("{k.name}");\n' for e, k in self.keys)
        key += "".join(f"            {s}: selector;\n" for s in selector if self.profile == "action_selector")
        text = ""
        if self.counted:
            text += f"    direct_counter(CounterType.packets_and_bytes) {self.name}_hits;\n"
        names = "".join(f" {action.name};" for action in self.actions)
        lines = f"        actions = {{{names} }}\n"
        if self.profile:
            arguments = "32" if self.profile == "action_profile" else "HashAlgorithm.crc16, 32, 16"
            text += f"    {self.profile}({arguments}) {self.name}_profile;\n"
            lines += f"        implementation = {self.name}_profile;\n"
        elif not self.default.params:
            lines += f"        default_action = {self.default.name}();\n"
        lines += f"        counters = {self.name}_hits;\n" if self.counted else ""
        return f"{text}    table {self.name} {{\n        key = {{\n{key}        }}\n{lines}    }}\n"

    # Entries.

    def entries(self, rng: random.Random) -> Iterator[Step]:
        """Yield the steps that fill the table and its profile."""
        chosen: list[tuple[int | None, int | None]] = [(None, None)]
        if self.profile:
            chosen = yield from self._profile(rng)
        elif self.default.params or rng.random() < 0.3:
            default = {"action": self.default.name, "params": self.default.arguments(rng)}
            yield Call("default", {"table": self.name, **default})
        yield from self._inserts(rng, chosen)

    def _profile(self, rng: random.Random) -> Iterator[Step]:
        profile = f"{self.name}_profile"
        members = list(range(1, 6))
        for member in members:
            action = rng.choice(self.actions)
            chosen_action = {"action": action.name, "params": action.arguments(rng)}
            yield Call("member", {"profile": profile, "member": member, **chosen_action})
        chosen: list[tuple[int | None, int | None]] = [(member, None) for member in members]
        if self.profile == "action_selector":
            for group in range(1, 4):
                inside = [(member, 1) for member in rng.sample(members, rng.randint(1, 4))]
                yield Call("group", {"profile": profile, "group": group, "members": inside})
                chosen += [(None, group)] * 3
        return chosen

    def _inserts(self, rng: random.Random, chosen: list[tuple[int | None, int | None]]) -> Iterator[Call]:
        seen: set[str] = set()
        for number in range(rng.randint(3, 12)):
            match = {key.name: key.match(rng) for _, key in self.keys}
            given = {name: part for name, part in match.items() if part is not None}
            if str(given) in seen:
                continue
            seen.add(str(given))
            entry = {"table": self.name, "match": given, "priority": number + 1 if self.needs_priority else 0}
            member, group = rng.choice(chosen)
            if member is None and group is None:
                action = rng.choice(self.actions)
                yield Call("insert", entry | {"action": action.name, "params": action.arguments(rng)})
            else:
                yield Call("insert", entry | {"member": member, "group": group})

    def counters(self, entries: list[Step]) -> Iterator[Call]:
        """Yield the reads of the counters of entries."""
        for step in entries:
            if self.counted and isinstance(step, Call) and step.method == "insert":
                names = ("table", "match", "priority")
                yield Call("directcounter", {name: step.arguments[name] for name in names})


def _key(writer: Writer, kind: str) -> tuple[str, int]:
    """Return an expression to match on and its width, which is usually small."""
    rng = writer.scope.rng
    if kind == "exact" and writer.scope.conditions and rng.random() < 0.15:
        header = [c for c in writer.scope.conditions if c.endswith("isValid()")]
        if header:
            return rng.choice(header), 1
    if rng.random() < 0.5 or kind == "lpm":  # BMv2's front end takes prefixes of whole bytes only
        return rng.choice(("h.a.kind", "h.a.sel")), 8
    variable = writer.scope.target(unsigned=True)
    if variable.width > NARROW and rng.random() < 0.7:
        low = rng.randrange(variable.width - NARROW)
        return f"{variable.name}[{low + NARROW - 1}:{low}]", NARROW
    if variable.width > 128:
        return f"{variable.name}[31:0]", 32
    return variable.name, variable.width
