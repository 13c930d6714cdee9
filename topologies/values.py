# SPDX-License-Identifier: Apache-2.0
"""Dataclasses as plain mappings and lists, read strictly: an unknown key or another type is an error."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from railweave.topologies.errors import TopologyError

T = TypeVar("T")
TYPE_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def plain(value: Any) -> Any:
    """Return dataclasses as mappings and tuples as lists, without fields at their default."""
    if dataclasses.is_dataclass(value):
        pairs = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: plain(item) for field, item in pairs if item != _default(field)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def build(cls: type[T], data: Any, where: str) -> T:
    """Build a dataclass from a mapping. The annotations of its fields define the expected types."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if not isinstance(data, dict):
        raise TopologyError(
            f"{where}: {_found(data)}",
            f"a mapping with {', '.join(fields)}",
            "correct the indentation",
        )
    hints = typing.get_type_hints(cls)
    unknown = [key for key in data if key not in fields]
    if unknown:
        raise TopologyError(
            f"{where}: unknown key {unknown[0]!r}", f"one of {', '.join(fields)}", "correct or remove it"
        )
    missing = [n for n, f in fields.items() if n not in data and _default(f) is dataclasses.MISSING]
    if missing:
        raise TopologyError(f"{where}: no key {missing[0]!r}", "this key", "add it")
    return cls(**{key: _value(hints[key], item, f"{where}.{key}") for key, item in data.items()})


def _value(hint: Any, data: Any, where: str) -> Any:
    if isinstance(hint, types.UnionType):  # T | None, where None is the default and left out
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is tuple:
        if not isinstance(data, list):
            raise TopologyError(f"{where}: {_found(data)}", "a list", "write it as [A, B]")
        item_hint = typing.get_args(hint)[0]
        checked = item_hint is float and {*map(type, data)} == {float}  # measurements have very many
        return tuple(
            item if checked else _value(item_hint, item, f"{where}[{place}]")
            for place, item in enumerate(data)
        )
    if typing.get_origin(hint) is Mapping:
        if not isinstance(data, dict):
            raise TopologyError(f"{where}: {_found(data)}", "a mapping", "write it as NAME: VALUE")
        item_hint = typing.get_args(hint)[1]
        return {key: _value(item_hint, item, f"{where}.{key}") for key, item in data.items()}
    if hint is float and type(data) is int:
        data = float(data)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), data, where)
    if hint is not Any and type(data) is not hint:
        raise TopologyError(
            f"{where}: {_found(data)}", TYPE_NAMES.get(hint, hint.__name__), "correct the value"
        )
    return data


def _found(data: Any) -> str:
    kinds = {type(None): "nothing", dict: "a mapping", list: "a list"}
    return kinds.get(type(data)) or repr(data)


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()
