# SPDX-License-Identifier: Apache-2.0
"""A program's declarations besides its code: headers, arrays, calculations, profiles and lists of fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from railweave._native.engine import ALGORITHMS
from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.expr import mask
from railweave.switch.lowering.fields import Field, Headers, read_headers
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    check,
    get,
    hexstr,
    name_of,
    named,
    natural,
    objects,
    unsupported,
    where,
)
from railweave.switch.program import ArrayInfo, DigestInfo, MeterInfo, ProfileInfo

MAX_ARRAY = 1 << 26
MAX_TABLE, DEFAULT_TABLE = 1 << 22, 1 << 10
MAX_LISTS = 1 << 12
MAX_PROFILE = 1 << 22

Inputs = list[tuple[str, Any]]  # of a calculation: (kind, field or constant)
Calculation = tuple[int, Inputs]  # number of the algorithm


@dataclass(frozen=True)
class Declarations:
    """All declarations of a program, by name unless a comment says otherwise."""

    headers: Headers
    registers: dict[str, ArrayInfo]
    counters: dict[str, ArrayInfo]  # indirect ones
    meters: dict[str, MeterInfo]
    direct_meters: dict[str, tuple[int, Field]]  # number, and the field for the result
    calculations: list[Calculation]  # the selectors' follow those that the program names
    calculation_numbers: dict[str, int]
    profiles: dict[str, tuple[ProfileInfo, int | None]]  # with the number of the selector's calculation
    field_lists: list[list[Field]]  # by number: fields that survive cloning, resubmission, recirculation
    learn_lists: list[Inputs]  # by number
    digests: dict[int, DigestInfo]  # by number
    errors: dict[str, int]


def declare(root: Json) -> Declarations:
    """Read all declarations."""
    for item in objects(root, "extern_instances"):
        raise unsupported(f"an extern of type {item.get('type')!r}", item, f"extern {item.get('name')!r}")
    headers = read_headers(root)
    meters, direct_meters = _meters(root, headers)
    calculations = {}
    for name, place, item in named(objects(root, "calculations"), "calculation"):
        calculations[name] = _calculation(item, headers, place)
    numbers = {name: number for number, name in enumerate(calculations)}
    profiles, selectors = _profiles(root, headers, len(calculations))
    learn_lists, digests = _learn_lists(root, headers)
    return Declarations(
        headers=headers,
        registers=_arrays(objects(root, "register_arrays"), "register array"),
        # Tables do not refer to direct counters, so several may have the same name.
        counters=_arrays(
            [item for item in objects(root, "counter_arrays") if not item.get("is_direct", False)],
            "counter array",
        ),
        meters=meters,
        direct_meters=direct_meters,
        calculations=[*calculations.values(), *selectors],
        calculation_numbers=numbers,
        profiles=profiles,
        field_lists=_field_lists(root, headers),
        learn_lists=learn_lists,
        digests=digests,
        errors=_errors(root),
    )


def _arrays(items: list[Json], what: str) -> dict[str, ArrayInfo]:
    """Read registers, which have a width, or indirect counters."""
    result: dict[str, ArrayInfo] = {}
    for name, place, item in named(items, what):
        width = natural(item, "bitwidth", place, MAX_BITS) if what == "register array" else None
        if width == 0:
            raise InvalidProgram(f"{place}: 0 bits")
        result[name] = ArrayInfo(name, len(result), natural(item, "size", place, MAX_ARRAY), width or 0)
    return result


def _meters(root: Json, headers: Headers) -> tuple[dict[str, MeterInfo], dict[str, tuple[int, Field]]]:
    """Return all meters, and the numbers and result fields of direct meters."""
    meters: dict[str, MeterInfo] = {}
    direct: dict[str, tuple[int, Field]] = {}
    for name, place, item in named(objects(root, "meter_arrays"), "meter array"):
        unit = get(item, "type", str, place)
        if unit not in {"bytes", "packets"}:
            raise InvalidProgram(f"{place}: a meter of {unit!r}")
        table = None
        if item.get("is_direct", False):
            table, target = get(item, "binding", str, place), headers.field(item.get("result_target"), place)
            if target.variable or target.is_valid_bit:
                raise unsupported(
                    "a direct meter with a result that is no field of fixed length", item, place
                )
            direct[name] = len(meters), target
        size = _size_of(root, table) if table else natural(item, "size", place, MAX_ARRAY)
        meters[name] = MeterInfo(name, len(meters), size, natural(item, "rate_count", place, 9), unit, table)
    return meters, direct


def _size_of(root: Json, name: str) -> int:
    for table in (table for pipeline in objects(root, "pipelines") for table in objects(pipeline, "tables")):
        if table.get("name") == name:
            return table_size(table, f"table {name!r}")
    raise InvalidProgram(f"a direct meter is bound to table {name!r}, which does not exist")


def table_size(table: Json, place: str) -> int:
    """Return how many entries a table holds. p4c gives the number of its entries to one without a size."""
    size = natural(table, "max_size", place, MAX_TABLE + 1) if "max_size" in table else 0
    entries = table.get("entries")
    return max(size, len(entries), DEFAULT_TABLE) if isinstance(entries, list) else size


def _calculation(item: Json, headers: Headers, place: str) -> Calculation:
    """Read a calculation that the program names, or the calculation of an action selector."""
    algorithm = get(item, "algo", str, place)
    if algorithm not in ALGORITHMS:
        raise unsupported(f"the hash algorithm {algorithm!r}", item, place)
    inputs: Inputs = []
    for piece in get(item, "input", list, place):
        kind = get(piece, "type", str, place)
        if kind == "field":
            inputs.append(("field", headers.field(piece.get("value"), place)))
        elif kind == "header":
            header = headers.header(piece.get("value"), place)
            inputs += [("field", f) for f in header.fields.values() if not f.is_valid_bit]
        elif kind == "hexstr":
            width = natural(piece, "bitwidth", place, MAX_BITS)
            inputs.append(("constant", (hexstr(piece.get("value"), place) & mask(width), width)))
        elif kind == "payload":
            inputs.append(("payload", None))
        else:
            raise unsupported(f"a {kind!r} in the input of a calculation", piece, place)
    return ALGORITHMS.index(algorithm), inputs


def _profiles(
    root: Json, headers: Headers, first: int
) -> tuple[dict[str, tuple[ProfileInfo, int | None]], list[Calculation]]:
    """Return action profiles, and the calculations of their selectors, numbered from `first`."""
    items = []
    for pipeline in objects(root, "pipelines"):
        items += objects(pipeline, "action_profiles")
        items += [  # p4c-bm puts the profile into the table
            {"name": table["act_prof_name"], "max_size": 0, "selector": table.get("selector")}
            for table in objects(pipeline, "tables")
            if "act_prof_name" in table
        ]
    profiles: dict[str, tuple[ProfileInfo, int | None]] = {}
    calculations: list[Calculation] = []
    for name, place, item in named(items, "action profile"):
        selector, number = item.get("selector"), None
        if selector is not None:
            number = first + len(calculations)
            calculations.append(_calculation(check(selector, dict, place), headers, place))
        size = natural(item, "max_size", place, MAX_PROFILE + 1)
        profiles[name] = ProfileInfo(name, size, selector is not None), number
    return profiles, calculations


def _field_lists(root: Json, headers: Headers) -> list[list[Field]]:
    """Return the fields that survive cloning, resubmission and recirculation, by the list's number."""
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


def _learn_lists(root: Json, headers: Headers) -> tuple[list[Inputs], dict[int, DigestInfo]]:
    """Return digests by number: as inputs of a calculation, each field padded to bytes in front."""
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


def _errors(root: Json) -> dict[str, int]:
    result = {}
    for item in check(root.get("errors", []), list, "errors"):
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[1], int):
            raise InvalidProgram("errors: another form", "[name, number]")
        result[str(item[0])] = item[1] & 0xFFFFFFFF
    return result
