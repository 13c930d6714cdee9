# SPDX-License-Identifier: Apache-2.0
"""The strings of a type that P4Runtime translates to `string`, and their numbers.

A string gets a number on its first use. The number is free again after its last user. A string of decimal
digits keeps its own number, because ports need that.
"""

from __future__ import annotations

import copy
import re

from finsy.proto import p4t

from railweave.switch.p4runtime.errors import exhausted, failed_precondition, invalid, require

MAX_STRING_BYTES = 256
_MAPPINGS = "@p4runtime_translation_mappings"
_MAPPING = re.compile(r'\{\s*"((?:[^"\\]|\\.)*)"\s*,\s*(?:\d+w)?(0[xX][0-9a-fA-F]+|\d+)\s*\}')


class Strings:
    """The strings of one type, both ways."""

    def __init__(self, name: str, bitwidth: int, spec: p4t.P4NewTypeSpec) -> None:
        """Keep the strings that the type's annotation maps to numbers for ever."""
        self._name = name
        self._bitwidth = bitwidth
        self._numbers: dict[bytes, int] = {}
        self._strings: dict[int, bytes] = {}
        self._users: dict[int, int] = {}
        self._next = (1 << bitwidth) - 1  # never given away: this number and those below it
        self._released: dict[int, None] = {}  # of those above, the last one first; some are used again
        for annotation in spec.annotations:
            if annotation.startswith(_MAPPINGS):
                self._map(annotation)

    def snapshot(self) -> Strings:
        """Return the strings as they are now, to be looked up only."""
        view = copy.copy(self)
        view._numbers, view._strings = dict(self._numbers), dict(self._strings)
        return view

    def string(self, number: int) -> bytes:
        """Return the string of a number: its decimal digits if no string has the number."""
        return self._strings.get(number, b"%d" % number)

    def find(self, string: bytes, what: str) -> int | None:
        """Return the number of a string; None if it has no number; Refused if it is malformed."""
        number = self._numbers.get(string)
        if number is not None:
            return number
        require(len(string) > 0, f"{what}: an empty string is no value, unless it is mapped")
        _check(string, what)
        number = self._own(string)
        return None if number in self._strings else number

    def take(self, string: bytes, what: str) -> int:
        """Return the number of a string to a new user. Refused if all numbers are used.

        The user gives the number back with `release`.
        """
        number = self.find(string, what)
        if number is None:
            number = self._allocate(string, what)
        self._enter(string, number)
        return number

    def release(self, number: int) -> None:
        """Drop one user of a number. The number is free again after the last."""
        self._users[number] -= 1
        if not self._users[number]:
            del self._users[number], self._numbers[self._strings.pop(number)]
            if number > self._next:
                self._released[number] = None

    def _enter(self, string: bytes, number: int) -> None:
        self._numbers[string] = number
        self._strings[number] = string
        self._users[number] = self._users.get(number, 0) + 1

    def _own(self, string: bytes) -> int | None:
        """Return the number that a string of decimal digits spells, if it fits."""
        if not string.isdigit() or string != b"%d" % int(string):
            return None
        number = int(string)
        return number if number >> self._bitwidth == 0 else None

    def _allocate(self, string: bytes, what: str) -> int:
        own = self._own(string)
        if own is not None:
            holder = self._strings[own].decode()
            raise failed_precondition(f"{what}: the number {own} stands for {holder!r}", "use another string")
        while self._released:
            number, _ = self._released.popitem()
            if number not in self._strings:
                return number
        while self._next in self._strings:
            self._next -= 1
        if self._next < 0:
            message = f"{what}: all {1 << self._bitwidth} values of {self._name} are used"
            raise exhausted(message)
        self._next -= 1
        return self._next + 1

    def _map(self, annotation: str) -> None:
        what = f"{_MAPPINGS} of {self._name}"
        rest = _MAPPING.sub("", annotation.removeprefix(_MAPPINGS))
        require(not rest.strip("(){}, \t\n"), f"{what}: {annotation} is no list of {{string, number}}")
        for quoted, digits in _MAPPING.findall(annotation):
            string, number = re.sub(r"\\(.)", r"\1", quoted).encode(), int(digits, 0)
            _check(string, what)
            require(number >> self._bitwidth == 0, f"{what}: {number} has more than {self._bitwidth} bits")
            require(
                string not in self._numbers and number not in self._strings,
                f"{what}: {quoted!r} or {number} is mapped twice",
            )
            self._enter(string, number)


def _check(string: bytes, what: str) -> None:
    size = len(string)
    require(size <= MAX_STRING_BYTES, f"{what}: a string has up to {MAX_STRING_BYTES} bytes, not {size}")
    try:
        string.decode()
    except UnicodeDecodeError:
        raise invalid(f"{what}: {string!r} is not UTF-8") from None
