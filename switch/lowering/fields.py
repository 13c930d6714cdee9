# SPDX-License-Identifier: Apache-2.0
"""Headers, their fields, and where they lie in the packet header vector (PHV).

Packet headers are kept as in the packet, so that extracting and deparsing are copies. A metadata field of up
to 64 bits is a native integer of its own. Lanes that are computed together lie side by side (`lanes.py`
asks for that), and so do the registers that are indexed alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    check,
    distinct,
    get,
    name_of,
    natural,
    objects,
    pair,
    unsupported,
)

SLACK = 8  # fields are loaded as 64-bit words: the last one may reach past its header
BANK_ALIGNMENT = 16  # words: a row of a bank begins on a cache line


@dataclass(frozen=True)
class Field:
    """A field of a header instance. `position` is its bit in the header, from the left; -1: the validity."""

    header: str
    name: str
    width: int
    signed: bool
    metadata: bool
    position: int

    @property
    def is_valid_bit(self) -> bool:
        """Whether this is `$valid$`."""
        return self.position < 0

    @property
    def is_packet_lane(self) -> bool:
        """Whether it is a whole 32-bit word of a packet header."""
        return not self.metadata and self.width == 32 and self.position >= 0 and self.position % 8 == 0

    @property
    def is_metadata_lane(self) -> bool:
        """Whether it is a 32-bit metadata field."""
        return self.metadata and self.width == 32


@dataclass(frozen=True)
class Header:
    """A header instance; `bits` is 0 mod 8 for packet headers."""

    name: str
    index: int  # among packet headers; -1 for metadata
    metadata: bool
    type_name: str
    fields: dict[str, Field]
    bits: int


@dataclass(frozen=True)
class Stack:
    """A header stack and its elements, in order."""

    name: str
    index: int
    headers: tuple[Header, ...]


@dataclass(frozen=True)
class Register:
    """A register array."""

    name: str
    index: int
    size: int
    width: int


@dataclass
class Headers:
    """All header instances and stacks of a program."""

    by_name: dict[str, Header] = field(default_factory=dict)
    stacks: dict[str, Stack] = field(default_factory=dict)
    aliases: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def header(self, name: Any, place: str) -> Header:
        """The instance of this name."""
        found = self.by_name.get(check(name, str, place))
        if found is None:
            raise InvalidProgram(f"{place}: no header {name!r}")
        return found

    def field(self, reference: Any, place: str) -> Field:
        """The field named by ["header", "field"]."""
        header_name, field_name = pair(reference, place)
        header_name, field_name = self.aliases.get((header_name, field_name), (header_name, field_name))
        found = self.header(header_name, place).fields.get(field_name)
        if found is None:
            raise InvalidProgram(f"{place}: header {header_name!r} has no field {field_name!r}")
        return found

    def find(self, header: str, name: str) -> Field | None:
        """The field or alias of this name, if the program has it."""
        header, name = self.aliases.get((header, name), (header, name))
        return self.by_name[header].fields.get(name) if header in self.by_name else None

    def stack(self, name: Any, place: str) -> Stack:
        """The header stack of this name."""
        found = self.stacks.get(check(name, str, place))
        if found is None:
            raise InvalidProgram(f"{place}: no header stack {name!r}")
        return found

    @property
    def packet_headers(self) -> list[Header]:
        """Those that are extracted and deparsed, by index."""
        return [header for header in self.by_name.values() if not header.metadata]


def _read_type(item: Json) -> tuple[str, list[tuple[str, int, bool]]]:
    place = f"header type {name_of(item, 'header type')!r}"
    fields = []
    for entry in get(item, "fields", list, place):
        parts = check(entry, list, place)
        if len(parts) < 2 or not isinstance(parts[0], str):
            raise InvalidProgram(f"{place}: a field is [name, width, signed]")
        if parts[1] == "*":
            raise unsupported("a variable-length field (varbit)", item, f"{place}, field {parts[0]!r}")
        width = check(parts[1], int, place)
        if not 1 <= width <= MAX_BITS:
            raise InvalidProgram(f"{place}: field {parts[0]!r} of {width} bits")
        if len(parts) > 3 and parts[3]:
            raise unsupported("a saturating field", item, f"{place}, field {parts[0]!r}")
        fields.append((parts[0], width, len(parts) > 2 and bool(parts[2])))
    return item["name"], fields


def read_headers(root: Json) -> Headers:
    """Header types, instances, stacks and field aliases of a program."""
    types = dict(_read_type(item) for item in objects(root, "header_types"))
    result = Headers()
    by_id: dict[int, Header] = {}
    packet_headers = 0
    for item in objects(root, "headers"):
        name = name_of(item, "header")
        place = f"header {name!r}"
        type_name = get(item, "header_type", str, place)
        metadata = get(item, "metadata", bool, place)
        if type_name not in types:
            raise InvalidProgram(f"{place}: no header type {type_name!r}")
        if name in result.by_name:
            raise InvalidProgram(f"{place} is declared twice")
        position, fields = 0, {}
        for field_name, width, signed in types[type_name]:
            fields[field_name] = Field(name, field_name, width, signed, metadata, position)
            position += width
        if not metadata and position % 8:
            raise InvalidProgram(f"{place}: {position} bits are not whole bytes")
        fields["$valid$"] = Field(name, "$valid$", 1, False, metadata, -1)
        header = Header(name, -1 if metadata else packet_headers, metadata, type_name, fields, position)
        packet_headers += not metadata
        result.by_name[name] = by_id[natural(item, "id", place)] = header
    _read_stacks(root, result, by_id)
    for alias in check(root.get("field_aliases", []), list, "field_aliases"):
        if not isinstance(alias, list) or len(alias) != 2 or not isinstance(alias[0], str):
            raise InvalidProgram("field_aliases: [name, [header, field]] is expected")
        header_name, _, field_name = alias[0].partition(".")
        result.aliases[header_name, field_name] = pair(alias[1], "field_aliases")
    return result


def _read_stacks(root: Json, result: Headers, by_id: dict[int, Header]) -> None:
    for item in distinct(objects(root, "header_stacks"), "header stack"):
        name = name_of(item, "header stack")
        place = f"header stack {name!r}"
        members = get(item, "header_ids", list, place)
        if not members or any(not isinstance(number, int) or number not in by_id for number in members):
            raise InvalidProgram(f"{place}: unknown header")
        headers = tuple(by_id[number] for number in members)
        if any(header.metadata or header.bits != headers[0].bits for header in headers):
            raise unsupported("a stack of metadata or of headers of different types", item, place)
        result.stacks[name] = Stack(name, len(result.stacks), headers)
    for key in ("header_unions", "header_union_stacks"):
        for item in objects(root, key):
            raise unsupported("a header union", item, f"{key} {item.get('name')!r}")


@dataclass
class Layout:
    """Places: runs of metadata fields and banks of registers that fusion asked for, then all the rest."""

    runs: list[tuple[Field, ...]] = field(default_factory=list)
    banks: list[tuple[Register, ...]] = field(default_factory=list)
    _run_of: dict[Field, tuple[int, int]] = field(default_factory=dict)
    _bank_of: dict[Register, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[Field, int] = field(default_factory=dict)
    metadata_bytes: int = 0
    validity: dict[str, int] = field(default_factory=dict)
    stack_next: dict[str, int] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def place_run(self, fields: tuple[Field, ...]) -> bool:
        """Ask for metadata fields side by side; False if they already lie otherwise."""
        return self._place(fields, self.runs, self._run_of)

    def place_bank(self, registers: tuple[Register, ...]) -> bool:
        """Ask for registers side by side; False if they already lie otherwise."""
        return self._place(registers, self.banks, self._bank_of)

    @staticmethod
    def _place(
        items: tuple[Any, ...], lists: list[tuple[Any, ...]], places: dict[Any, tuple[int, int]]
    ) -> bool:
        if len(set(items)) != len(items):
            return False
        placed = [places.get(item) for item in items]
        if all(place is None for place in placed):
            for position, item in enumerate(items):
                places[item] = (len(lists), position)
            lists.append(items)
            return True
        first = placed[0]
        return first is not None and all(place == (first[0], first[1] + i) for i, place in enumerate(placed))

    def finish(self, headers: Headers, registers: list[Register]) -> None:
        """Give everything its place."""
        for run in self.runs:
            for member in run:
                self.offsets[member] = self._take(4, 4)
        for header in headers.by_name.values():
            for member in header.fields.values():
                if member.metadata and not member.is_valid_bit and member not in self.offsets:
                    self.offsets[member] = self._take(*self._native_size(member.width))
        self.metadata_bytes = self.size
        for stack in headers.stacks.values():
            self.stack_next[stack.name] = self._take(4, 4)
        for header in headers.packet_headers:
            self.validity[header.name] = self._take(1, 1)
        for header in headers.packet_headers:
            self.images[header.name] = self._take(header.bits // 8 + SLACK, 64)
        self.size += SLACK
        for register in registers:
            if register not in self._bank_of:
                self.place_bank((register,))

    @staticmethod
    def _native_size(width: int) -> tuple[int, int]:
        if width <= 64:
            return (4, 4) if width <= 32 else (8, 8)
        return (width + 7) // 8 + SLACK, 8

    def _take(self, size: int, alignment: int) -> int:
        offset = -(-self.size // alignment) * alignment
        self.size = offset + size
        return offset

    def bank_position(self, register: Register) -> tuple[int, int]:
        """Bank of a register and its word in the bank's rows."""
        bank, position = self._bank_of[register]
        return bank, sum(register_words(other) for other in self.banks[bank][:position])

    def bank_shape(self, bank: int) -> tuple[int, int]:
        """Rows of a bank and 32-bit words per row."""
        members = self.banks[bank]
        words = sum(register_words(member) for member in members)
        if len(members) > 1:
            words = -(-words // BANK_ALIGNMENT) * BANK_ALIGNMENT
        return members[0].size, words

    def bit_position(self, member: Field) -> int:
        """Bit of a field that is kept most significant byte first, in the PHV."""
        if member.metadata:
            return self.offsets[member] * 8 + -member.width % 8
        return self.images[member.header] * 8 + member.position


def register_words(register: Register) -> int:
    """32-bit words that one cell takes."""
    return 1 if register.width <= 32 else (register.width + 63) // 64 * 2
