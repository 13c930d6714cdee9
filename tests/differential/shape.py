# SPDX-License-Identifier: Apache-2.0
"""The headers, metadata and features of a random program, and packets for its parser."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

from differential.expressions import Scope, Variable, some_width

PORTS = 8


@dataclass(frozen=True)
class Features:
    """Optional features of a program. Every program uses expressions, branches and tables."""

    stack: bool
    union: bool
    varbit: bool
    value_set: bool
    registers: bool
    counters: bool
    hashes: bool
    checksum: bool
    selector: bool
    multicast: bool
    clone: bool
    egress_clone: bool
    resubmit: bool
    recirculate: bool
    truncate: bool
    loops: bool
    runtime_index: bool

    @classmethod
    def some(cls, rng: random.Random, without: frozenset[str]) -> Features:
        """Choose about a third of all features."""
        return cls(**{f.name: rng.random() < 0.35 and f.name not in without for f in fields(cls)})

    @property
    def in_step(self) -> bool:
        """Whether packets must come one by one, because BMv2's threads would reorder them."""
        return self.recirculate or self.egress_clone

    @property
    def unordered(self) -> bool:
        """Whether copies to one port have no order, because they race through BMv2's threads."""
        return self.in_step and self.multicast


@dataclass(frozen=True)
class Shape:
    """The names and widths of headers and metadata, and the features."""

    features: Features
    first: tuple[Variable, ...]  # fields of h.a, which is always there
    second: tuple[Variable, ...]  # fields of h.b
    metadata: tuple[Variable, ...]
    listed: frozenset[str]  # metadata that a field list keeps
    stack_size: int
    item: tuple[Variable, ...]  # fields of a stack's header, without the first byte

    @classmethod
    def some(cls, rng: random.Random, without: frozenset[str]) -> Shape:
        """Return a random shape."""
        features = Features.some(rng, without)
        first = [Variable("h.a.kind", 8), Variable("h.a.sel", 8)]
        first += [Variable(f"h.a.f{i}", some_width(rng)) for i in range(rng.randint(2, 10))]
        first += [Variable("h.a.ck", 16)] if features.checksum else []
        second = _padded([Variable(f"h.b.g{i}", some_width(rng)) for i in range(rng.randint(1, 4))], "h.b")
        metadata = []
        for number in range(rng.randint(2, 7)):
            signed = rng.random() < 0.3
            metadata.append(Variable(f"m.m{number}", some_width(rng, 2 if signed else 1), signed))
        listed = frozenset(v.name for v in metadata if rng.random() < 0.5)
        item = [Variable(f"i{i}", rng.choice((4, 8, 12, 16, 20, 32, 64))) for i in range(rng.randint(1, 3))]
        return cls(
            features,
            tuple(_padded(first, "h.a")),
            tuple(second),
            tuple(metadata),
            listed,
            rng.choice((2, 4)),
            tuple(_padded(item, "")),
        )

    # Declarations.

    def declarations(self) -> str:
        """Return the declarations of header types and structs."""
        item = "bit<8> more; " + _members(self.item)
        headers = [f"header a_t {{ {_members(self.first)}}}", f"header b_t {{ {_members(self.second)}}}"]
        headers += [f"header item_t {{ {item}}}", "header x_t { bit<8> tag; bit<16> x; }"]
        headers += ["header y_t { bit<8> tag; bit<40> y; }", "header_union u_t { x_t x; y_t y; }"]
        headers += ["header v_t { bit<8> size; varbit<96> data; }"]
        members = ["a_t a;", "b_t b;"]
        members += [f"item_t[{self.stack_size}] s;"] if self.features.stack else []
        members += ["u_t u;"] if self.features.union else []
        members += ["v_t v;"] if self.features.varbit else []
        kept = "".join(
            f"    {'@field_list(1) ' if v.name in self.listed else ''}{_type(v)} {v.name[2:]};\n"
            for v in self.metadata
        )
        return (
            "\n".join(headers)
            + f"\nstruct H {{ {' '.join(members)} }}\n"
            + f"struct M {{\n    @field_list(1) bit<8> trips;\n{kept}}}\n"
        )

    def emits(self) -> list[str]:
        """Return the headers in the deparser's order."""
        names = {"stack": "h.s", "union": "h.u", "varbit": "h.v"}
        return ["h.a", "h.b", *(name for key, name in names.items() if getattr(self.features, key))]

    # Scopes.

    def scope(self, rng: random.Random, place: str) -> Scope:
        """Return the variables that code in `parser`, `ingress` or `egress` can use."""
        seen = [*self.first, *self.metadata]
        standard = {"ingress": {"ingress_port": 9, "packet_length": 32, "instance_type": 32}, "parser": {}}
        standard["ingress"] |= {"checksum_error": 1} if self.features.checksum else {}
        standard["egress"] = {"egress_port": 9, "instance_type": 32, "egress_rid": 16, "packet_length": 32}
        seen += [Variable(f"s.{n}", width, writable=False) for n, width in standard[place].items()]
        if place == "parser":
            # BMv2 parses an ingress clone with the metadata of some earlier packet.
            return Scope(rng, self.first if self.features.clone else tuple(seen))
        conditions = ["h.b.isValid()"]
        seen += [Variable(v.name, v.width, guard="h.b.isValid()") for v in self.second]
        for index in range(self.stack_size if self.features.stack else 0):
            conditions.append(f"h.s[{index}].isValid()")
            seen += [Variable(f"h.s[{index}].{v.name}", v.width, guard=conditions[-1]) for v in self.item]
        if self.features.union:
            conditions += ["h.u.x.isValid()", "h.u.y.isValid()"]
            seen += [Variable("h.u.x.x", 16, guard="h.u.x.isValid()")]
            seen += [Variable("h.u.y.y", 40, guard="h.u.y.isValid()")]
        if self.features.varbit:
            conditions.append("h.v.isValid()")
        if place == "ingress":
            conditions += ["(s.parser_error == error.NoError)", "(s.parser_error == error.PacketTooShort)"]
        return Scope(rng, tuple(seen), tuple(conditions))

    # Packets.

    def packet(self, rng: random.Random) -> bytes:
        """Return bytes for all headers in the parser's order, with edge values. Few packets are cut short."""
        data = bytes([rng.randrange(8), rng.randrange(16)]) + _bytes(rng, _size(self.first) - 2)
        if rng.random() < 0.7:
            data += _bytes(rng, _size(self.second))
        for _ in range(rng.randrange(6) if self.features.stack else 0):
            data += bytes([rng.randrange(3)]) + _bytes(rng, _size(self.item))
        if self.features.union:
            data += bytes([rng.randrange(4)]) + _bytes(rng, rng.choice((2, 5)))
        if self.features.varbit:
            data += bytes([rng.randrange(14)]) + _bytes(rng, rng.randrange(13))
        data += _bytes(rng, rng.randrange(40))
        return data[: rng.randrange(1, len(data) + 1)] if rng.random() < 0.06 else data


def _type(variable: Variable) -> str:
    return f"{'int' if variable.signed else 'bit'}<{variable.width}>"


def _members(variables: tuple[Variable, ...]) -> str:
    return "".join(f"{_type(v)} {v.name.split('.')[-1]}; " for v in variables)


def _size(variables: tuple[Variable, ...]) -> int:
    return sum(v.width for v in variables) // 8


def _padded(variables: list[Variable], header: str) -> list[Variable]:
    """Add a field if the header would not end at a byte boundary."""
    missing = -sum(v.width for v in variables) % 8
    name = f"{header}.pad" if header else "pad"
    return [*variables, Variable(name, missing)] if missing else variables


def _bytes(rng: random.Random, count: int) -> bytes:
    if rng.random() < 0.25:
        return bytes(rng.choice((0, 0xFF, 0x80, 0x7F, 1)) for _ in range(count))
    return rng.randbytes(count)
