# SPDX-License-Identifier: Apache-2.0
"""Messages of a program (log_msg), in BMv2's notation: `{…}` is a value, `\\\\{` and `\\\\}` are braces."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLACE = re.compile(r"(?<!\\)\{.*?(?<!\\)\}", re.DOTALL)
_ESCAPED = re.compile(r"\\([{}])")


def places(text: str) -> int:
    """Return how many values a message takes; ValueError if a brace is not closed."""
    if re.search(r"(?<!\\)\{", _PLACE.sub("", text)):
        raise ValueError(f"the message {text!r:.60} has an opening brace without its closing one")
    return len(_PLACE.findall(text))


def fill(text: str, values: Sequence[int]) -> str:
    """Return the message as text, with its values in decimal."""
    # Python refuses to write numbers of more than 4,300 digits.
    remaining = (str(value) if value.bit_length() <= 1 << 13 else hex(value) for value in values)
    return _ESCAPED.sub(r"\1", _PLACE.sub(lambda _: next(remaining), text))
