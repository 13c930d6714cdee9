# SPDX-License-Identifier: Apache-2.0
"""Objects of a P4Info by name, and values as text."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Sequence
from typing import TypeVar

from railweave.switch.errors import SwitchError
from railweave.switch.p4runtime.schema import Named

_T = TypeVar("_T", bound=Named)


def of(one: Named) -> str:
    """Return the name by which people know an object: its alias, if it has one."""
    return one.preamble.alias or one.preamble.name


def find(kind: str, objects: Sequence[_T], wanted: str) -> _T:
    """Return the object with this name or alias; SwitchError lists similar names."""
    for one in objects:
        if wanted in (one.preamble.name, one.preamble.alias):
            return one
    if not objects:
        raise SwitchError(
            f"{kind} {wanted!r}", f"nothing, because the program has no {kind}s", "name another kind"
        )
    names = [of(one) for one in objects]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)
    there = f"one of {', '.join(near or sorted(names))}"
    raise SwitchError(f"{kind} {wanted!r}", there, "correct the name")


def span(text: str | None, size: int, name: str) -> range:
    """Parse `3`, `2:8` (2…7), `8:` or nothing (all) as indexes; SwitchError for anything else."""
    if text is None:
        return range(size)
    found = re.fullmatch(r"(\d*)(:?)(\d*)", text)
    if not found or not (found[1] or found[2]):
        raise SwitchError(f"{text!r}", "an index or a range FIRST:END", "correct the index")
    first = int(found[1] or 0)
    end = (int(found[3]) if found[3] else size) if found[2] else first + 1
    if not 0 <= first < end <= size:
        raise SwitchError(f"{name}: index {text!r}", f"0…{size - 1}", "correct the index")
    return range(first, end)


def value(data: bytes, bitwidth: int) -> int | str:
    """Return a value as a number, or as text if its type is translated to strings (width 0)."""
    return int.from_bytes(data, "big") if bitwidth else data.decode(errors="replace")


def number(value: int | str, bitwidth: int, name: str = "") -> str:
    """Return a value as text: an address if width and name suggest one, else decimal or hexadecimal."""
    if isinstance(value, str):
        return repr(value)
    if bitwidth == 48:
        return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))
    if re.search(r"ip|addr", name, re.IGNORECASE) and bitwidth in (32, 128):
        return str(ipaddress.IPv4Address(value) if bitwidth == 32 else ipaddress.IPv6Address(value))
    return str(value) if bitwidth <= 16 or value < 10 else f"{value:#x}"
