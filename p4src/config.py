# SPDX-License-Identifier: Apache-2.0
"""The numbers of `common/config.p4`, their one home, as Python sees them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

SOURCE_ROOT: Final = Path(__file__).parent

_NUMBER: Final = re.compile(
    r"^(?:#define (?P<size>[A-Z]\w*) (?P<size_value>\d+)"
    r"|const bit<\d+> (?P<code>[A-Z]\w*) = (?P<code_value>\d+);)",
    re.MULTILINE,
)


def read_config(text: str) -> dict[str, int]:
    """Return name → number for every size and code point in the text of a `config.p4`."""
    return {m["size"] or m["code"]: int(m["size_value"] or m["code_value"]) for m in _NUMBER.finditer(text)}


CONFIG: Final[Mapping[str, int]] = MappingProxyType(
    read_config((SOURCE_ROOT / "common" / "config.p4").read_text(encoding="utf-8"))
)
"""Every size and code point; `LANES` is the default profile's."""
