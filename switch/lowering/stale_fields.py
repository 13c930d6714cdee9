# SPDX-License-Identifier: Apache-2.0
"""Fields of invalid headers: BMv2 reads them as 0 in a table's key, even if they held another value."""

from __future__ import annotations

from typing import Any

from railweave.switch.lowering.fields import Field
from railweave.switch.lowering.source import Json, objects, parts

_WHOLE = {"header", "header_stack", "header_union", "header_union_stack", "stack_field"}


class StaleFields:
    """The fields that may differ from 0 while their header is invalid.

    A packet starts with zeros everywhere. So these are the fields that are assigned, and all fields of
    headers that can become invalid. Such headers are named as a whole by a primitive, or belong to a stack
    or union.
    """

    def __init__(self, root: Json) -> None:
        """Look through all primitives of a program."""
        self._headers: set[str] = set()
        self._fields: set[tuple[str, str]] = set()
        names = {item.get("id"): item.get("name") for item in objects(root, "headers")}
        for key in ("header_stacks", "header_unions"):
            for item in objects(root, key):
                self._headers |= {str(names.get(number)) for number in item.get("header_ids", [])}
        for part in parts([root.get("actions"), root.get("parsers")]):
            if isinstance(part, dict) and "op" in part and isinstance(part.get("parameters"), list):
                for position, parameter in enumerate(part["parameters"]):
                    self._add(part["op"], position, parameter)
        for item in objects(root, "field_lists"):  # which copies of a packet take over
            for element in item.get("elements", []):
                self._add("set", 0, element)

    def _add(self, op: Any, position: int, parameter: Any) -> None:
        if not isinstance(parameter, dict):
            return
        kind, value = parameter.get("type"), parameter.get("value") or [None]
        if not isinstance(kind, str):
            return  # an error when the primitive is read
        if kind == "field" and (position == 0 or op == "execute_meter") and isinstance(value, list):
            self._fields.add((str(value[0]), str(value[-1])))
        elif kind in _WHOLE and op != "add_header":
            self._headers.add(str(value[0] if isinstance(value, list) else value))

    def __contains__(self, member: Field) -> bool:
        """Return whether the field may be stale."""
        if member.metadata or member.is_valid_bit:
            return False
        return member.header in self._headers or (member.header, member.name) in self._fields
