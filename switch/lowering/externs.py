# SPDX-License-Identifier: Apache-2.0
"""Action profiles, and the lists of fields that packets keep or send to the control plane."""

from __future__ import annotations

from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.expr import mask
from railweave.switch.lowering.fields import Field, Headers
from railweave.switch.lowering.parser import read_calculation
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import (
    Json,
    check,
    distinct,
    get,
    hexstr,
    name_of,
    natural,
    objects,
    parts,
    unsupported,
    where,
)
from railweave.switch.program import DigestInfo, ProfileInfo

MAX_LISTS = 1 << 12
MAX_PROFILE = 1 << 22

Inputs = list[tuple[str, Any]]  # of a calculation: (kind, what it is)


def read_profiles(
    root: Json, expressions: ExpressionReader, algorithms: list[str]
) -> dict[str, tuple[ProfileInfo, tuple[int, Inputs] | None]]:
    """Action profiles by name, with the calculation of those that have a selector."""
    items = [item for pipeline in objects(root, "pipelines") for item in objects(pipeline, "action_profiles")]
    result = {}
    for item in distinct(items, "action profile"):
        name = name_of(item, "action profile")
        place = where(item, f"action profile {name!r}")
        selector = item.get("selector")
        calculation = None
        if selector is not None:
            calculation = read_calculation(check(selector, dict, place), expressions, algorithms, place)
        size = natural(item, "max_size", place, MAX_PROFILE + 1)
        result[name] = ProfileInfo(name, size, selector is not None), calculation
    return result


def read_field_lists(root: Json, headers: Headers) -> list[list[Field]]:
    """Fields that survive cloning, resubmission and recirculation, by the list's number."""
    result: list[list[Field]] = []
    for item in objects(root, "field_lists"):
        place = where(item, f"field list {item.get('name')!r}")
        number = natural(item, "id", place, MAX_LISTS)
        members = []
        for element in get(item, "elements", list, place):
            kind = get(element, "type", str, place)
            if kind == "hexstr":
                continue  # a constant is nothing that could be kept
            if kind != "field":
                raise unsupported(f"a {kind!r} in a field list", item, place)
            member = headers.field(element.get("value"), place)
            if member.is_valid_bit:
                raise unsupported("a header's validity in a field list", item, place)
            if member.variable and not member.metadata:
                raise unsupported("a header's variable-length field in a field list", item, place)
            members.append(member)
        result += [[] for _ in range(number + 1 - len(result))]
        result[number] = members
    return result


def read_learn_lists(root: Json, headers: Headers) -> tuple[list[Inputs], dict[int, DigestInfo]]:
    """Digests by number: as inputs of a calculation, every field padded to whole bytes in front."""
    inputs: list[Inputs] = []
    infos = {}
    for item in objects(root, "learn_lists"):
        name = name_of(item, "learn list")
        place = where(item, f"learn list {name!r}")
        number = natural(item, "id", place, MAX_LISTS)
        if number in infos:
            raise InvalidProgram(f"{place}: two lists with id {number}")
        pieces: Inputs = []
        widths = []
        for element in get(item, "elements", list, place):
            piece, width = _sample(element, headers, item, place)
            pieces += [("constant", (0, -width % 8)), piece]
            widths.append(width)
        inputs += [[] for _ in range(number + 1 - len(inputs))]
        inputs[number] = pieces
        infos[number] = DigestInfo(name, number, tuple(widths))
    return inputs, infos


def _sample(element: Any, headers: Headers, item: Json, place: str) -> tuple[tuple[str, Any], int]:
    kind = get(element, "type", str, place)
    if kind == "field":
        member = headers.field(element.get("value"), place)
        if member.variable:
            raise unsupported("a variable-length field in a digest", item, place)
        return ("sample", member), member.width
    if kind == "hexstr":
        digits = check(element.get("value"), str, place).removeprefix("0x")
        width = 8 * -(-len(digits) // 2)
        return ("constant", (hexstr(element.get("value"), place) & mask(width), width)), width
    raise unsupported(f"a {kind!r} in a digest", item, place)


def mentions(item: Any, name: str) -> bool:
    """Whether a field of this name is named anywhere in a part of the program."""
    return any(part[1:] == [name] and len(part) == 2 for part in parts(item) if isinstance(part, list))
