# SPDX-License-Identifier: Apache-2.0
"""Checked access to a BMv2 JSON document: missing or mistyped members raise InvalidProgram."""

from __future__ import annotations

import json
import json.scanner
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from railweave.switch.errors import InvalidProgram, UnsupportedConstruct

T = TypeVar("T")
Json = dict[str, Any]

MAX_BITS = 1 << 16  # of any field, constant or shift


# As BMv2's parser (jsoncpp), this one accepts control characters in strings, and other encodings than UTF-8.
_DECODER = json.JSONDecoder(strict=False)
# The scanner in C keeps all other threads waiting until the whole document is read.
_DECODER.scan_once = json.scanner.py_make_scanner(_DECODER)  # type: ignore[attr-defined]


def where(item: Any, fallback: str) -> str:
    """Return the file and line that p4c recorded for a JSON object, else the fallback."""
    info = item.get("source_info") if isinstance(item, dict) else None
    if isinstance(info, dict) and info.get("filename"):
        return f"{info['filename']}:{info.get('line', '?')}"
    return fallback


def parse_document(text: bytes) -> Json:
    """Return the root object; InvalidProgram if the bytes are not a BMv2 program in JSON."""
    try:
        root = _DECODER.decode(text.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise InvalidProgram(f"not JSON: {error}") from None
    if not isinstance(root, dict) or "pipelines" not in root or "header_types" not in root:
        raise InvalidProgram("not a BMv2 program: it has no 'pipelines' or no 'header_types'")
    about = root.get("__meta__")
    version = about.get("version", [2, 0]) if isinstance(about, dict) else [2, 0]
    if not isinstance(version, list) or not version or version[0] != 2:
        raise InvalidProgram(f"BMv2 JSON of version {version}", "version 2")
    return root


def parts(item: Any) -> Iterator[Any]:
    """Yield an object and all nested values."""
    waiting = [item]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def get(item: Any, key: str, kind: type[T], place: str) -> T:
    """Return `item[key]`, which must be a `kind`."""
    if not isinstance(item, dict) or key not in item:
        raise InvalidProgram(f"{place}: {key!r} is missing")
    return check(item[key], kind, f"{place}: {key!r}")


def check(value: Any, kind: type[T], place: str) -> T:
    """Return `value`, which must be a `kind` (a bool is no int)."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidProgram(f"{place}: {value!r:.60}", f"a {kind.__name__}")
    return value


def find(table: Mapping[str, T], name: Any, what: str, place: str) -> T:
    """Return the object of this name, which must be in the table."""
    if check(name, str, place) not in table:
        raise InvalidProgram(f"{place}: no {what} {name!r}")
    return table[name]


def objects(root: Json, key: str) -> list[Json]:
    """Return the list of objects under `key`; empty if the key is missing."""
    return [check(item, dict, key) for item in check(root.get(key, []), list, key)]


def named(items: list[Json], what: str) -> list[tuple[str, str, Json]]:
    """Return name, place and object of each item. Names must differ."""
    names = [name_of(item, what) for item in items]
    if len(set(names)) != len(names):
        raise InvalidProgram(f"two objects of the kind {what} have the same name")
    return [(name, where(item, f"{what} {name!r}"), item) for name, item in zip(names, items, strict=True)]


def name_of(item: Json, place: str) -> str:
    """Return the `name` member."""
    return get(item, "name", str, place)


def natural(item: Any, key: str, place: str, most: int = 1 << 32) -> int:
    """Return a non-negative integer member below `most`."""
    value = get(item, key, int, place)
    if not 0 <= value < most:
        raise InvalidProgram(f"{place}: {key!r} is {value}", f"0…{most - 1}")
    return value


def pair(value: Any, place: str) -> tuple[str, str]:
    """Return a reference such as ["header", "field"]."""
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, str) for part in value):
        raise InvalidProgram(f"{place}: {value!r:.60}", "[header, field]")
    return value[0], value[1]


def hexstr(value: Any, place: str) -> int:
    """Return a number in BMv2's hexadecimal notation, possibly negative."""
    text = check(value, str, place)
    try:
        number = int(text, 16)
    except ValueError:
        raise InvalidProgram(f"{place}: {text!r:.60}", "a hexadecimal number") from None
    if number.bit_length() > MAX_BITS:
        raise InvalidProgram(f"{place}: a number of {number.bit_length()} bits")
    return number


def unsupported(construct: str, item: Any, place: str) -> UnsupportedConstruct:
    """Return the exception for a construct that the lowering does not know."""
    return UnsupportedConstruct(construct, where(item, place))
