# SPDX-License-Identifier: Apache-2.0
"""Errors of programs, requests and options of the switch."""

from railweave.errors import USAGE, Unavailable, UserError


class SwitchError(UserError):
    """The switch cannot start or continue; the message names the cause and what to do."""

    status = USAGE


class NoAnswer(Unavailable, SwitchError):
    """No switch answers at the given address."""


class InvalidProgram(UserError, ValueError):
    """The JSON is not a BMv2 program: malformed or inconsistent."""

    status = USAGE

    def __init__(
        self,
        given: str,
        expected: str = "BMv2 JSON as p4c writes it",
        do: str = "compile the P4 program again with p4c",
    ) -> None:
        """Name the place and the mistake there."""
        super().__init__(given, expected, do)


class UnsupportedConstruct(InvalidProgram):
    """The program uses a construct that the engine does not support."""

    def __init__(self, construct: str, where: str) -> None:
        """Name the construct, and its position in the source or the object that holds it."""
        super().__init__(
            f"{where}: {construct} is not supported by the embedded switch",
            "other constructs of v1model",
            "rewrite the program, or run it with --target bmv2",
        )


class DuplicateEntry(ValueError):
    """An entry with the same key (and priority) is in the table already."""


class OutOfRange(ValueError):
    """A value has more bits than its key field or parameter."""


class TableFull(ValueError):
    """The table holds as many entries as the program declared."""


class UnknownEntry(KeyError):
    """No entry has this handle."""


class ImmutableTable(ValueError):
    """The program made these entries, or this default action, constant."""


class InUse(ValueError):
    """Entries or groups still refer to this member or group."""
