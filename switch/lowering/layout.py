# SPDX-License-Identifier: Apache-2.0
"""Where headers, metadata and registers lie in the packet header vector (PHV) and in the register banks.

Packet headers are kept as in the packet, so that extracting and deparsing are copies. Each metadata field of
up to 64 bits is a native integer. A variable-length field lies apart from its header: its length in bytes as
a native 32-bit integer, then its bytes. Fields that are computed together lie side by side (`vectors.py` asks
for that). So do registers with the same index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from railweave.switch.lowering.fields import Field, Headers
from railweave.switch.program import ArrayInfo

SLACK = 8  # fields are loaded as 64-bit words: the last one may reach past its header
BANK_ALIGNMENT = 16  # words: a row of a bank begins on a cache line
LENGTH_BYTES = 4  # of a variable-length field, in front of its contents


Row = tuple[Field, ...] | tuple[ArrayInfo, ...]  # metadata fields or registers that must lie side by side


def lay_out(headers: Headers, registers: Iterable[ArrayInfo], rows: Iterable[Row]) -> Layout:
    """Give everything its place: `rows` of metadata fields first, then all other fields."""
    layout = Layout()
    for row in rows:
        if isinstance(row[0], ArrayInfo):
            layout._add_bank(row)
        else:
            for member in row:
                layout._place_field(member)
    for header in headers.by_name.values():
        for member in header.fields.values():
            if member.metadata and not member.is_valid_bit and member not in layout.offsets:
                layout._place_field(member)
    layout.metadata_bytes = layout.size
    for stack in headers.all_stacks:
        layout.stack_next[stack.name] = layout._take(4, 4)
    for header in headers.packet_headers:
        layout.validity[header.name] = layout._take(1, 1)
    for header in headers.packet_headers:
        layout.images[header.name] = layout._take(header.bits // 8 + SLACK, 64)
        if header.variable is not None:
            layout._place_field(header.variable)
    layout.size += SLACK
    for register in (register for register in registers if register not in layout._bank_positions):
        layout._add_bank((register,))
    return layout


@dataclass
class Layout:
    """Places in the PHV and in the register banks."""

    banks: list[tuple[ArrayInfo, ...]] = field(default_factory=list)  # of registers, in a row's order
    _bank_positions: dict[ArrayInfo, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[Field, int] = field(default_factory=dict)
    metadata_bytes: int = 0
    validity: dict[str, int] = field(default_factory=dict)
    stack_next: dict[str, int] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    variables: dict[Field, int] = field(default_factory=dict)  # numbers of the variable-length fields
    size: int = 0

    def _add_bank(self, registers: tuple[ArrayInfo, ...]) -> None:
        words = 0
        for register in registers:
            self._bank_positions[register] = len(self.banks), words
            words += register_words(register)
        self.banks.append(registers)

    def _place_field(self, member: Field) -> None:
        """Place a metadata field, or a variable-length field of any header."""
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
        """Return how many bytes from a metadata field's offset hold its value."""
        if member.variable:
            return LENGTH_BYTES + member.width // 8
        return self._native_size(member.width)[0] if member.width <= 64 else (member.width + 7) // 8

    def _take(self, size: int, alignment: int) -> int:
        offset = -(-self.size // alignment) * alignment
        self.size = offset + size
        return offset

    def bank_position(self, register: ArrayInfo) -> tuple[int, int]:
        """Return the bank of a register and its word in the bank's rows."""
        return self._bank_positions[register]

    def bank_shape(self, bank: int) -> tuple[int, int]:
        """Return the rows of a bank and the 32-bit words per row."""
        members = self.banks[bank]
        words = sum(map(register_words, members))
        if len(members) > 1:
            words = -(-words // BANK_ALIGNMENT) * BANK_ALIGNMENT
        return members[0].size, words

    def bit_position(self, member: Field) -> int:
        """Return the bit in the PHV of a field that is kept most significant byte first."""
        if member.metadata:
            return self.offsets[member] * 8 + -member.width % 8
        return self.images[member.header] * 8 + member.position


def register_words(register: ArrayInfo) -> int:
    """Return how many 32-bit words one cell takes."""
    return 1 if register.width <= 32 else (register.width + 63) // 64 * 2
