# SPDX-License-Identifier: Apache-2.0
"""P4Data: values of structured types, as registers hold them and digests carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from finsy.proto import p4d, p4i, p4t

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import invalid, require, unimplemented
from railweave.switch.p4runtime.strings import Strings

_MAX_DEPTH = 16  # of types within types: a P4Info may name itself
_MAX_LEAVES = 4096
_S = TypeVar("_S")


@dataclass(frozen=True)
class Plain:
    """A type without parts. The data plane holds its values as numbers without a sign."""

    field: str  # of P4Data
    bitwidth: int  # 0: controllers see text instead of numbers
    signed: bool = False
    text: Callable[[int], str | bytes] | None = None

    def put(self, value: int, data: p4d.P4Data) -> None:
        """Write a number of the data plane into a P4Data."""
        if self.field == "bool":
            data.bool = bool(value)
        elif self.text:
            setattr(data, self.field, self.text(value))
        else:
            number = value - (1 << self.bitwidth) if self.signed and value >> (self.bitwidth - 1) else value
            setattr(data, self.field, bytestrings.encode(number, signed=self.signed))

    def take(self, data: p4d.P4Data, what: str) -> int:
        """Return the number for the data plane; Refused if the P4Data is not of this type."""
        given = data.WhichOneof("data")
        require(given == self.field, f"{what} holds a {self.field}, not {given or 'nothing'}")
        if self.field == "bool":
            return int(data.bool)
        value = bytestrings.decode(getattr(data, self.field), self.bitwidth, what, signed=self.signed)
        return value & ((1 << self.bitwidth) - 1)


class Types:
    """The types that a P4Info defines."""

    def __init__(self, p4info: p4i.P4Info, strings: Mapping[str, Strings] | None = None) -> None:
        """Index the types; `strings` are those of the types that are translated to strings."""
        self._info = p4info.type_info
        self._strings = strings or {}

    def plain(self, spec: p4t.P4DataTypeSpec, depth: int = 0) -> Plain | None:
        """Return a plain type; None for a type that has parts."""
        _check_depth(depth)
        found = None
        match spec.WhichOneof("type_spec"):
            case "bitstring":
                bits = spec.bitstring
                varbit = "varbit is not supported in registers and digests"
                require(not bits.HasField("varbit"), varbit, unimplemented)
                width = _positive(bits.int.bitwidth or bits.bit.bitwidth)
                found = Plain("bitstring", width, signed=bits.HasField("int"))
            case "bool":
                found = Plain("bool", 1)
            case "enum":
                enum = _find("enum", self._info.enums, spec.enum.name)
                found = _named("enum", [member.name for member in enum.members])
            case "error":
                found = _named("error", list(self._info.error.members))
            case "serializable_enum":
                coded = _find("enum", self._info.serializable_enums, spec.serializable_enum.name)
                found = Plain("enum_value", _positive(coded.underlying_type.bitwidth))
            case "new_type":
                name = spec.new_type.name
                new = _find("type", self._info.new_types, name)
                if not new.HasField("translated_type"):
                    found = self.plain(new.original_type, depth + 1)
                elif new.translated_type.HasField("sdn_string"):
                    found = Plain("bitstring", 0, text=self._strings[name].string if self._strings else None)
                else:
                    found = Plain("bitstring", _positive(new.translated_type.sdn_bitwidth))
        return found

    def leaves(self, spec: p4t.P4DataTypeSpec, depth: int = 0) -> int:
        """Return how many plain values make up a type; Refused for types that digests cannot carry."""
        _check_depth(depth)
        if self.plain(spec):
            return 1
        found = 0
        for member in self._members(spec):
            found += self.leaves(member, depth + 1)
            require(found <= _MAX_LEAVES, f"a type has more than {_MAX_LEAVES} parts")
        return found

    def encode(self, spec: p4t.P4DataTypeSpec, values: Iterator[int]) -> p4d.P4Data:
        """Return the P4Data made of plain values, of which there are as many as the type has leaves."""
        data = p4d.P4Data()
        if plain := self.plain(spec):
            plain.put(next(values), data)
            return data
        parts = [self.encode(member, values) for member in self._members(spec)]
        kind = str(spec.WhichOneof("type_spec"))
        if kind == "header":
            data.header.is_valid = True
            data.header.bitstrings.extend(part.bitstring for part in parts)
        else:
            getattr(data, kind).members.extend(parts)
        return data

    def _members(self, spec: p4t.P4DataTypeSpec) -> list[p4t.P4DataTypeSpec]:
        """Return the types of the parts of a tuple, struct or header."""
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
                raise unimplemented(f"type {other} is not supported in registers and digests")


def _check_depth(depth: int) -> None:
    require(depth < _MAX_DEPTH, f"types are nested more than {_MAX_DEPTH} deep")


def _named(field: str, names: list[str]) -> Plain:
    """Return a type whose values p4c numbers in the order of their names. Other numbers have no name."""
    return Plain(field, 0, text=lambda value: names[value] if value < len(names) else "")


def _positive(bitwidth: int) -> int:
    require(bitwidth > 0, f"a number has 1 bit or more, but the P4Info has one of {bitwidth} bits")
    return bitwidth


def _find(kind: str, known: Mapping[str, _S], name: str) -> _S:
    if name not in known:  # a map of messages would make one up
        raise invalid(f"the P4Info lacks the {kind} {name!r} that it refers to")
    return known[name]
