# SPDX-License-Identifier: Apache-2.0
"""Help texts that the commands of several folders share."""

from __future__ import annotations

JSON = "Write the result as JSON to a new file, or to stdout if FILE is -. Default: no JSON."
KEEP_LINES = "\b"  # alone in a line: the lines up to the next empty one are not wrapped


def examples(*commands: str) -> str:
    """Return the end of a command's help: examples, one per line.

    >>> examples("doctor", "plan 4M").splitlines()[1:]
    ['Examples:', '  railweave doctor', '  railweave plan 4M']
    """
    return "\n".join([KEEP_LINES, "Examples:", *(f"  railweave {command}" for command in commands)])
