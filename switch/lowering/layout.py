# SPDX-License-Identifier: Apache-2.0
"""Where headers, metadata and registers lie in the packet header vector (PHV) and in the register banks.

Packet headers are kept as in the packet, so that extracting and deparsing are copies. A metadata field of up
to 64 bits is a native integer of its own. A variable-length field lies apart from its header: its length in
bytes as a native 32-bit integer, then its bytes. Lanes that are computed together lie side by side
(`lanes.py` asks for that), and so do the registers that are indexed alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from railweave.switch.lowering.fields import Field, Headers, Register

SLACK = 8  # fields are loaded as 64-bit words: the last one may reach past its header
BANK_ALIGNMENT = 16  # words: a row of a bank begins on a cache line
LENGTH_BYTES = 4  # of a variable-length field, in front of its contents


@dataclass
class Layout:
    """Places: runs of metadata fields and banks of registers that fusion asked for, then all the rest."""

    runs: list[tuple[Field, ...]] = field(default_factory=list)
    banks: list[tuple[Register, ...]] = field(default_factory=list)
    _run_of: dict[Field, tuple[int, int]] = field(default_factory=dict)
    _bank_of: dict[Register, tuple[int, int]] = field(default_factory=dict)
    _words_before: dict[Register, int] = field(default_factory=dict)  # in the rows of its bank
    offsets: dict[Field, int] = field(default_factory=dict)
    metadata_bytes: int = 0
    validity: dict[str, int] = field(default_factory=dict)
    stack_next: dict[str, int] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    variables: dict[Field, int] = field(default_factory=dict)  # numbers of the variable-length fields
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
                    self._place_field(member)
        self.metadata_bytes = self.size
        for stack in headers.all_stacks:
            self.stack_next[stack.name] = self._take(4, 4)
        for header in headers.packet_headers:
            self.validity[header.name] = self._take(1, 1)
        for header in headers.packet_headers:
            self.images[header.name] = self._take(header.bits // 8 + SLACK, 64)
            if header.variable is not None:
                self._place_field(header.variable)
        self.size += SLACK
        self._finish_banks(registers)

    def _finish_banks(self, registers: list[Register]) -> None:
        for register in registers:
            if register not in self._bank_of:
                self.place_bank((register,))
        for bank in self.banks:
            words = 0
            for register in bank:
                self._words_before[register] = words
                words += register_words(register)

    def _place_field(self, member: Field) -> None:
        """A metadata field, or a variable-length field of any header."""
        if member.variable:
            self.variables[member] = len(self.variables)
            size, alignment = LENGTH_BYTES + member.width // 8 + SLACK, LENGTH_BYTES
        else:
            size, alignment = self._native_size(member.width)
        self.offsets[member] = self._take(size, alignment)

    @staticmethod
    def _native_size(width: int) -> tuple[int, int]:
        if width <= 64:
            return (4, 4) if width <= 32 else (8, 8)
        return (width + 7) // 8 + SLACK, 8

    def stored_bytes(self, member: Field) -> int:
        """Bytes from a metadata field's offset that hold its value."""
        if member.variable:
            return LENGTH_BYTES + member.width // 8
        return self._native_size(member.width)[0] if member.width <= 64 else (member.width + 7) // 8

    def _take(self, size: int, alignment: int) -> int:
        offset = -(-self.size // alignment) * alignment
        self.size = offset + size
        return offset

    def bank_position(self, register: Register) -> tuple[int, int]:
        """Bank of a register and its word in the bank's rows."""
        return self._bank_of[register][0], self._words_before[register]

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
