# SPDX-License-Identifier: Apache-2.0
"""Help texts of commands: the form in which all of them show their examples."""

from __future__ import annotations

KEEP_LINES = "\b"  # alone in a line: the lines up to the next empty one are not wrapped


def examples(*commands: str) -> str:
    """Return the end of a command's help: examples, one per line.

    >>> examples("doctor", "plan 4M").splitlines()[1:]
    ['Examples:', '  railweave doctor', '  railweave plan 4M']
    """
    return "\n".join([KEEP_LINES, "Examples:", *(f"  railweave {command}" for command in commands)])
