# SPDX-License-Identifier: Apache-2.0
"""The form of all errors that users read: the given value, the expected one, and the next step."""

from __future__ import annotations

import re
from typing import ClassVar, TypeVar

# Exit statuses of commands. docs/reference/cli.md explains them.
WRONG, USAGE, LACKING = 1, 2, 3
INTERRUPTED, TERMINATED = 130, 143  # 128 + the number of the signal, as in shells

_PARTS = re.compile(r"(.+): expected (.+); (.+)", re.DOTALL)


def explain(given: str, expected: str = "", do: str = "") -> str:
    """Return one message of three parts.

    >>> explain("--hosts 1", "2 or more", "name more hosts")
    '--hosts 1: expected 2 or more; name more hosts'
    """
    return given + (f": expected {expected}" if expected else "") + (f"; {do}" if do else "")


def parts(text: str) -> tuple[str, str, str]:
    """Return the parts of a message from `explain`. Any other text becomes the first part.

    >>> parts("--hosts 1: expected 2 or more; name more hosts")
    ('--hosts 1', '2 or more', 'name more hosts')
    """
    match = _PARTS.fullmatch(text)
    return (match[1], match[2], match[3]) if match else (text, "", "")


class UserError(Exception):
    """An error that a user can correct.

    `given` names the value or the state, `expected` the correct ones, `do` the next step of the user.
    A single argument is a complete message, for example one that another process has sent.
    `status` is the exit status of a command that the error ends.
    """

    status: ClassVar[int] = WRONG

    def __init__(self, given: str, expected: str = "", do: str = "") -> None:
        """Join the three parts."""
        super().__init__(explain(given, expected, do))


class Unavailable(UserError):
    """This machine lacks something that a command needs: a right, a tool, memory, a server."""

    status = LACKING


E = TypeVar("E", bound=UserError)


def of_file(kind: type[E], path: object, error: Exception, expected: str) -> E:
    """Return the error of a file: the mistake in it, or the reason why it cannot be read."""
    if isinstance(error, UserError):
        return kind(f"{path}: {error}")
    return kind(
        f"{path}: {getattr(error, 'strerror', None) or error}", expected, "correct the file or its name"
    )
