# SPDX-License-Identifier: Apache-2.0
"""P4Data: values of structured types, as registers hold them and digests carry them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from finsy.proto import p4d, p4i, p4t

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import invalid, require
from railweave.switch.p4runtime.strings import Strings

_MAX_DEPTH = 16  # of types within types: a P4Info may name itself
_MAX_LEAVES = 4096
_S = TypeVar("_S")


def bitwidths(p4info: p4i.P4Info, spec: p4t.P4DataTypeSpec) -> list[int]:
    """Widths of the plain values that make up a type, in order; Refused for types without fixed parts."""
    return _Types(p4info).leaves(spec, 0)


def encode(
    p4info: p4i.P4Info, spec: p4t.P4DataTypeSpec, values: Sequence[int], strings: Mapping[str, Strings]
) -> p4d.P4Data:
    """The P4Data made of plain values, as many and in the order of `bitwidths`; `strings` by type."""
    return _Types(p4info, strings).encode(spec, iter(values))


def decode(p4info: p4i.P4Info, spec: p4t.P4DataTypeSpec, data: p4d.P4Data, what: str) -> list[int]:
    """The plain values of a P4Data; Refused if it is not of that type."""
    values: list[int] = []
    _Types(p4info).decode(spec, data, what, values)
    return values


class _Types:
    """The types that a P4Info defines."""

    def __init__(self, p4info: p4i.P4Info, strings: Mapping[str, Strings] | None = None) -> None:
        self._info = p4info.type_info
        self._strings = strings or {}

    def members(self, spec: p4t.P4DataTypeSpec) -> list[p4t.P4DataTypeSpec]:
        """Types of the parts of a tuple, struct or header."""
        match spec.WhichOneof("type_spec"):
            case "tuple":
                return list(spec.tuple.members)
            case "struct":
                struct = _find("struct", self._info.structs, spec.struct.name)
                return [member.type_spec for member in struct.members]
            case "header":
                header = _find("header", self._info.headers, spec.header.name)
                return [p4t.P4DataTypeSpec(bitstring=member.type_spec) for member in header.members]
            case other:
                raise invalid(f"type {other} is not supported in registers and digests")

    def plain(self, spec: p4t.P4DataTypeSpec, depth: int = 0) -> int | None:
        """The width of a plain type, 0 for strings; None for one that has parts."""
        require(depth < _MAX_DEPTH, f"types are nested more than {_MAX_DEPTH} deep")
        match spec.WhichOneof("type_spec"):
            case "bitstring":
                bits = spec.bitstring
                return bits.bit.bitwidth or bits.int.bitwidth or bits.varbit.max_bitwidth
            case "bool":
                return 1
            case "serializable_enum":
                enum = _find("enum", self._info.serializable_enums, spec.serializable_enum.name)
                return enum.underlying_type.bitwidth
            case "new_type":
                new = _find("type", self._info.new_types, spec.new_type.name)
                if new.HasField("translated_type"):
                    return new.translated_type.sdn_bitwidth
                return self.plain(new.original_type, depth + 1)
        return None

    def leaves(self, spec: p4t.P4DataTypeSpec, depth: int) -> list[int]:
        require(depth < _MAX_DEPTH, f"types are nested more than {_MAX_DEPTH} deep")
        width = self.plain(spec)
        if width is not None:
            return [width]
        found: list[int] = []
        for member in self.members(spec):
            found += self.leaves(member, depth + 1)
            require(len(found) <= _MAX_LEAVES, f"a type has more than {_MAX_LEAVES} parts")
        return found

    def encode(self, spec: p4t.P4DataTypeSpec, values: Iterator[int]) -> p4d.P4Data:
        kind = spec.WhichOneof("type_spec")
        if kind == "bool":
            return p4d.P4Data(bool=bool(next(values)))
        if kind == "serializable_enum":
            return p4d.P4Data(enum_value=bytestrings.encode(next(values)))
        if kind == "new_type" and spec.new_type.name in self._strings:
            return p4d.P4Data(bitstring=self._strings[spec.new_type.name].string(next(values)))
        if self.plain(spec) is not None:
            return p4d.P4Data(bitstring=bytestrings.encode(next(values)))
        data = p4d.P4Data()
        for member in self.members(spec):
            part = self.encode(member, values)
            if kind == "struct":
                data.struct.members.append(part)
            elif kind == "tuple":
                data.tuple.members.append(part)
            else:
                data.header.is_valid = True
                data.header.bitstrings.append(part.bitstring)
        return data

    def decode(self, spec: p4t.P4DataTypeSpec, data: p4d.P4Data, what: str, into: list[int]) -> None:
        kind, given = spec.WhichOneof("type_spec"), data.WhichOneof("data")
        width = self.plain(spec)
        expected = {"bool": "bool", "serializable_enum": "enum_value"}.get(
            str(kind), str(kind) if width is None else "bitstring"
        )
        require(given == expected, f"{what} holds a {expected}, not {given or 'nothing'}")
        if kind == "bool":
            into.append(int(data.bool))
        elif width is not None:
            into.append(bytestrings.decode(getattr(data, expected), width, what))
        else:
            self._decode_members(spec, data, what, into)

    def _decode_members(self, spec: p4t.P4DataTypeSpec, data: p4d.P4Data, what: str, into: list[int]) -> None:
        parts = {
            "struct": list(data.struct.members),
            "tuple": list(data.tuple.members),
            "header": [p4d.P4Data(bitstring=bits) for bits in data.header.bitstrings],
        }[str(data.WhichOneof("data"))]
        members = self.members(spec)
        require(len(parts) == len(members), f"{what} has {len(members)} members, not {len(parts)}")
        for member, part in zip(members, parts, strict=True):
            self.decode(member, part, what, into)


def _find(kind: str, known: Mapping[str, _S], name: str) -> _S:
    found = known.get(name) if name in known else None  # a map of messages would make one up
    if found is None:
        raise invalid(f"the P4Info lacks the {kind} {name!r} that it refers to")
    return found
