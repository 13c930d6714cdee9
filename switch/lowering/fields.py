# SPDX-License-Identifier: Apache-2.0
"""Headers, unions, stacks and their fields, as the program declares them.

A header union is the list of the headers that share it; a stack of unions is a stack whose elements have
several headers each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    check,
    find,
    get,
    name_of,
    named,
    natural,
    objects,
    pair,
    unsupported,
    where,
)

MAX_VARIABLE_BYTES = 1 << 14  # of a variable-length field
MAX_HEADER_BYTES = 1 << 19  # of all headers together


@dataclass(frozen=True)
class Field:
    """A field of a header instance. `position` is its bit in the header, from the left; -1: the validity.

    A variable field (varbit) is stored apart: its width is its maximum, and fields after it have the
    positions that they would have if it were empty.
    """

    header: str
    name: str
    width: int
    signed: bool
    metadata: bool
    position: int
    variable: bool = False

    @property
    def is_valid_bit(self) -> bool:
        """Return whether this is `$valid$`."""
        return self.position < 0

    @property
    def is_native(self) -> bool:
        """Return whether the field can be loaded and stored as one 64-bit word."""
        return self.width <= 64 and (
            self.metadata or self.is_valid_bit or self.position % 8 + self.width <= 64
        )

    @property
    def element_bytes(self) -> int:
        """Return the size of the field as an element of a vector in memory; 0 if it cannot be one."""
        if self.variable or self.is_valid_bit or not 0 < self.width <= 64:
            return 0
        if self.metadata:
            return 4 if self.width <= 32 else 8
        return self.width // 8 if self.width in {8, 16, 32, 64} and self.position % 8 == 0 else 0


@dataclass(frozen=True)
class Header:
    """A header instance; `bits`, without a variable field's, is 0 mod 8 for packet headers."""

    name: str
    index: int  # among packet headers; -1 for metadata
    metadata: bool
    type_name: str
    fields: dict[str, Field]
    bits: int

    @property
    def variable(self) -> Field | None:
        """Return the variable-length field, if the header has one."""
        return next((member for member in self.fields.values() if member.variable), None)

    @property
    def valid(self) -> Field:
        """Return the field of the validity."""
        return self.fields["$valid$"]


@dataclass(frozen=True)
class Union:
    """A header union: at most one of its headers is valid."""

    name: str
    type_name: str
    headers: tuple[Header, ...]


@dataclass(frozen=True)
class Stack:
    """A stack of headers or of unions. Each element is one header, or all headers of a union."""

    name: str
    index: int
    elements: tuple[tuple[Header, ...], ...]
    members: tuple[str, ...] = ()  # of a stack of unions: names of the headers of an element

    @property
    def headers(self) -> tuple[Header, ...]:
        """Return the headers of a stack of headers."""
        return tuple(element[0] for element in self.elements)

    def member(self, name: Any, place: str) -> int:
        """Return the position of the named header in an element of a stack of unions."""
        if name not in self.members:
            raise InvalidProgram(f"{place}: the unions of stack {self.name!r} have no header {name!r}")
        return self.members.index(name)


@dataclass
class Headers:
    """All header instances and stacks of a program."""

    by_name: dict[str, Header] = field(default_factory=dict)
    stacks: dict[str, Stack] = field(default_factory=dict)
    union_stacks: dict[str, Stack] = field(default_factory=dict)
    unions: dict[str, Union] = field(default_factory=dict)
    union_of: dict[str, Union] = field(default_factory=dict)  # by header
    aliases: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def header(self, name: Any, place: str) -> Header:
        """Return the instance of this name."""
        return find(self.by_name, name, "header", place)

    def field(self, reference: Any, place: str) -> Field:
        """Return the field named by ["header", "field"]."""
        header_name, field_name = pair(reference, place)
        header_name, field_name = self.aliases.get((header_name, field_name), (header_name, field_name))
        found = self.header(header_name, place).fields.get(field_name)
        if found is None:
            raise InvalidProgram(f"{place}: header {header_name!r} has no field {field_name!r}")
        return found

    def find(self, header: str, name: str) -> Field | None:
        """Return the field or alias of this name, if the program has it."""
        header, name = self.aliases.get((header, name), (header, name))
        return self.by_name[header].fields.get(name) if header in self.by_name else None

    def stack(self, name: Any, place: str) -> Stack:
        """Return the header stack of this name."""
        return find(self.stacks, name, "header stack", place)

    def union_stack(self, name: Any, place: str) -> Stack:
        """Return the stack of header unions of this name."""
        return find(self.union_stacks, name, "stack of header unions", place)

    def union(self, name: Any, place: str) -> Union:
        """Return the header union of this name."""
        return find(self.unions, name, "header union", place)

    @property
    def all_stacks(self) -> list[Stack]:
        """Return stacks of headers and of unions, by index."""
        return sorted((*self.stacks.values(), *self.union_stacks.values()), key=lambda stack: stack.index)

    @property
    def packet_headers(self) -> list[Header]:
        """Return the headers that are extracted and deparsed, by index."""
        return [header for header in self.by_name.values() if not header.metadata]


def _read_type(item: Json) -> tuple[str, list[Field]]:
    """Return name and fields of a header type, as they are in packet headers."""
    name = name_of(item, "header type")
    place = where(item, f"header type {name!r}")
    fields: list[Field] = []
    position = 0
    for entry in get(item, "fields", list, place):
        parts = check(entry, list, place)
        if len(parts) < 2 or not isinstance(parts[0], str):
            raise InvalidProgram(f"{place}: a field of another form", "[name, width, signed]")
        if len(parts) > 3 and parts[3]:
            raise unsupported("a saturating field", item, f"{place}, field {parts[0]!r}")
        variable = parts[1] == "*"
        width = 0 if variable else check(parts[1], int, place)
        if not 0 <= width <= MAX_BITS:
            raise InvalidProgram(f"{place}: field {parts[0]!r} of {width} bits")
        signed = not variable and len(parts) > 2 and bool(parts[2])
        fields.append(
            Field("", parts[0], width, signed, metadata=False, position=position, variable=variable)
        )
        position += width
    if len({entry.name for entry in fields}) != len(fields):
        raise InvalidProgram(f"{place}: two fields of the same name")
    if sum(entry.variable for entry in fields) > 1:
        raise InvalidProgram(f"{place}: two variable-length fields")
    if any(entry.variable for entry in fields):  # it gets the bits that the greatest length leaves
        if "length_exp" in item:
            raise unsupported("a header type with an expression for its length", item, place)
        left = 8 * natural(item, "max_length", place, MAX_VARIABLE_BYTES + 1) - position
        if left < 0 or left % 8:
            raise InvalidProgram(f"{place}: {left} bits are left for the variable-length field")
        fields = [replace(entry, width=left) if entry.variable else entry for entry in fields]
    return name, fields


def read_headers(root: Json) -> Headers:
    """Read header types, instances, unions, stacks and field aliases of a program."""
    types = dict(_read_type(item) for item in objects(root, "header_types"))
    result = Headers()
    by_id: dict[int, Header] = {}
    packet_headers = total_bits = 0
    for item in objects(root, "headers"):
        name = name_of(item, "header")
        if name in result.by_name:
            raise InvalidProgram(f"header {name!r} is declared twice")
        metadata = get(item, "metadata", bool, f"header {name!r}")
        header = _header(item, types, -1 if metadata else packet_headers)
        total_bits += sum(member.width for member in header.fields.values())
        if total_bits > 8 * MAX_HEADER_BYTES:
            raise InvalidProgram(f"the program's headers take more than {MAX_HEADER_BYTES} bytes")
        packet_headers += not metadata
        result.by_name[name] = by_id[natural(item, "id", f"header {name!r}")] = header
    _read_stacks(root, result, by_id)
    _read_unions(root, result, by_id)
    for alias in check(root.get("field_aliases", []), list, "field_aliases"):
        if not isinstance(alias, list) or len(alias) != 2 or not isinstance(alias[0], str):
            raise InvalidProgram("field_aliases: another form", "[name, [header, field]]")
        header_name, _, field_name = alias[0].partition(".")
        result.aliases[header_name, field_name] = pair(alias[1], "field_aliases")
    return result


def _header(item: Json, types: dict[str, list[Field]], index: int) -> Header:
    name, metadata = item["name"], index < 0
    place = f"header {name!r}"
    type_name = get(item, "header_type", str, place)
    entries = find(types, type_name, "header type", place)
    fields = {entry.name: replace(entry, header=name, metadata=metadata) for entry in entries}
    bits = sum(entry.width for entry in fields.values() if not entry.variable)
    if not metadata and bits % 8:
        raise InvalidProgram(f"{place}: {bits} bits are not whole bytes")
    fields["$valid$"] = Field(name, "$valid$", 1, signed=False, metadata=metadata, position=-1)
    return Header(name, index, metadata, type_name, fields, bits)


def _members(item: Json, key: str, by_id: dict[int, Any], place: str) -> tuple[Any, ...]:
    """Return the objects that a list of ids names."""
    numbers = get(item, key, list, place)
    if not numbers or any(type(number) is not int or number not in by_id for number in numbers):
        raise InvalidProgram(f"{place}: {key!r} names something unknown, or nothing")
    if len(set(numbers)) != len(numbers):
        raise InvalidProgram(f"{place}: {key!r} names something twice")
    return tuple(by_id[number] for number in numbers)


def _read_stacks(root: Json, result: Headers, by_id: dict[int, Header]) -> None:
    for name, place, item in named(objects(root, "header_stacks"), "header stack"):
        headers: tuple[Header, ...] = _members(item, "header_ids", by_id, place)
        if any(header.metadata or header.type_name != headers[0].type_name for header in headers):
            raise unsupported("a stack of metadata or of headers of different types", item, place)
        result.stacks[name] = Stack(name, len(result.stacks), tuple((header,) for header in headers))


def _read_unions(root: Json, result: Headers, by_id: dict[int, Header]) -> None:
    names: dict[str, tuple[str, ...]] = {}
    for item in objects(root, "header_union_types"):
        type_name = name_of(item, "header union type")
        names[type_name] = tuple(
            pair(entry, type_name)[0] for entry in get(item, "headers", list, f"union type {type_name!r}")
        )
    unions: dict[int, Union] = {}
    for name, place, item in named(objects(root, "header_unions"), "header union"):
        headers: tuple[Header, ...] = _members(item, "header_ids", by_id, place)
        union = Union(name, get(item, "union_type", str, place), headers)
        if any(header.metadata or header.name in result.union_of for header in headers):
            raise InvalidProgram(f"{place}: a header that is metadata or in another union")
        if len(names.get(union.type_name, ())) != len(headers):
            raise InvalidProgram(f"{place}: its type has another number of headers")
        result.unions[name] = unions[natural(item, "id", place)] = union
        result.union_of |= dict.fromkeys((header.name for header in headers), union)
    for name, place, item in named(objects(root, "header_union_stacks"), "stack of header unions"):
        members: tuple[Union, ...] = _members(item, "header_union_ids", unions, place)
        shapes = {(union.type_name, *(header.type_name for header in union.headers)) for union in members}
        if len(shapes) > 1:
            raise InvalidProgram(f"{place}: unions of different types")
        result.union_stacks[name] = Stack(
            name,
            len(result.stacks) + len(result.union_stacks),
            tuple(union.headers for union in members),
            names[members[0].type_name],
        )
