# SPDX-License-Identifier: Apache-2.0
"""Learnt costs as a JSON file, so that a job starts hot. Every field is checked before any is believed.

A file holds the costs of several kinds of job: another number of hosts, or other rails, are another kind,
whose costs do not apply. All ranks have learnt the same, so each can save and load a file of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from railweave.hosts.capabilities import COLLECTIVE_NAMES
from railweave.hosts.errors import InvalidOption
from railweave.hosts.options import RAIL_KINDS
from railweave.hosts.striping.costs import Fit, Line, RailCost
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.table import NUMBERS, CostKey, CostTable

FORMAT, VERSION = "railweave costs", 1
LARGEST_FILE = 16 << 20  # bytes
LARGEST_CLASS = 1 << 50  # bytes

Job = dict[str, Any]  # one kind of job, as it stands in the file


def read(path: Path) -> list[Job]:
    """Return all kinds of job of a file. InvalidOption names the file, the field, and what was expected."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidOption(f"costs file {path}: larger than {LARGEST_FILE} bytes, which no job needs")
        value = json.loads(path.read_text("utf-8"), parse_constant=_no_constant)
    except OSError as error:
        raise InvalidOption(f"costs file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"costs file {path}: not JSON: {error}") from error
    try:
        return _jobs(value)
    except _Bad as bad:
        raise InvalidOption(f"costs file {path}: {bad}") from None


def write(path: Path, job: Job) -> None:
    """Put a kind of job into a file, beside the others that it holds. InvalidOption if that cannot be."""
    others = [other for other in read(path) if kind_of(other) != kind_of(job)] if path.exists() else []
    text = json.dumps({"format": FORMAT, "version": VERSION, "jobs": [*others, job]}, indent=1) + "\n"
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, "utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidOption(f"costs file {path}: cannot be written: {error.strerror}") from error


def kind_of(job: Job) -> tuple[object, ...]:
    """Return what makes jobs alike: the number of hosts, and each rail's name, kind and rate."""
    return (job["hosts"], *((rail["name"], rail["kind"], rail["rate_bps"]) for rail in job["rails"]))


def kind_text(job: Job) -> str:
    """Return the same for people."""
    rails = ", ".join(f"{rail['name']} ({rail['kind']}, {rail['rate_bps']} bit/s)" for rail in job["rails"])
    return f"{job['hosts']} hosts, rails {rails}"


def dump(table: CostTable, rails: Sequence[StripedRail], hosts: int) -> Job:
    """Return a table's costs as a kind of job."""
    costs = []
    for key in table.keys():  # noqa: SIM118 - a table is no mapping
        for rail in rails:
            if (cost := table.get(key, rail.index)) is not None:
                entry: dict[str, Any] = {"rail": rail.name, **vars(key)}
                entry |= {"alone": _dump_fit(cost.alone), "shared": _dump_fit(cost.shared)}
                costs.append(entry)
    described = [{"name": rail.name, "kind": rail.kind, "rate_bps": rail.rate_bps} for rail in rails]
    return {"hosts": hosts, "rails": described, "costs": costs}


def load(job: Job, rails: Sequence[StripedRail]) -> CostTable:
    """Return the table of a kind of job."""
    table = CostTable(rails, job["hosts"])
    index = {rail.name: rail.index for rail in rails}
    for entry in job["costs"]:
        key = CostKey(entry["collective"], entry["numbers"], entry["size_class"])
        cost = RailCost(key.size_class, 0.0)
        for fit, value in ((cost.alone, entry["alone"]), (cost.shared, entry["shared"])):
            if value is not None:
                line = Line(value["a_us"] / 1e6, value["b_bps"] / 8)
                fit.restore(line, value["at_bytes"], value["samples"])
        table.load(key, index[entry["rail"]], cost)
    return table


def digest(job: Job) -> str:
    """Return what two ranks compare: equal texts are equal costs."""
    return json.dumps(job, sort_keys=True)


def _dump_fit(fit: Fit) -> dict[str, Any] | None:
    if not fit.known:
        return None
    line = fit.line()
    return {
        "a_us": line.a_s * 1e6,
        "b_bps": line.rate * 8,
        "at_bytes": fit.mean_size,
        "samples": fit.samples,
    }


# ------------------------------------------------------------ checks


class _Bad(Exception):
    """What is wrong with a field."""


def _jobs(value: object) -> list[Job]:
    top = _fields(value, "the file", ("format", "version", "jobs"))
    if top["format"] != FORMAT:
        raise _Bad(f"format is {_short(top['format'])}: expected {FORMAT!r}; is it a file of costs?")
    if top["version"] != VERSION or isinstance(top["version"], bool):
        raise _Bad(f"version is {_short(top['version'])}: this version of railweave reads {VERSION}")
    return [_job(job, f"jobs[{place}]") for place, job in enumerate(_list(top["jobs"], "jobs"))]


def _job(value: object, at: str) -> Job:
    job = _fields(value, at, ("hosts", "rails", "costs"))
    _whole(job["hosts"], f"{at}.hosts", 2, 1 << 16)
    names = []
    for place, rail in enumerate(_list(job["rails"], f"{at}.rails")):
        where = f"{at}.rails[{place}]"
        given = _fields(rail, where, ("name", "kind", "rate_bps"))
        names.append(_text(given["name"], f"{where}.name"))
        _one_of(given["kind"], f"{where}.kind", RAIL_KINDS)
        _whole(given["rate_bps"], f"{where}.rate_bps", 0, 10**15)
    if len(set(names)) < len(names):
        raise _Bad(f"{at}.rails: names must differ, and are {', '.join(names)}")
    seen = set()
    for place, cost in enumerate(_list(job["costs"], f"{at}.costs")):
        key = _cost(cost, f"{at}.costs[{place}]", names)
        if key in seen:
            raise _Bad(f"{at}.costs[{place}]: this class and rail is there before")
        seen.add(key)
    return job


def _cost(value: object, at: str, rails: Sequence[str]) -> tuple[object, ...]:
    fields = ("rail", "collective", "numbers", "size_class", "alone", "shared")
    cost = _fields(value, at, fields)
    _one_of(cost["rail"], f"{at}.rail", rails)
    _one_of(cost["collective"], f"{at}.collective", sorted(COLLECTIVE_NAMES.values()))
    _one_of(cost["numbers"], f"{at}.numbers", tuple(NUMBERS))
    size_class = _whole(cost["size_class"], f"{at}.size_class", 1, LARGEST_CLASS)
    if size_class & (size_class - 1):
        raise _Bad(f"{at}.size_class is {size_class}: expected a power of two")
    if cost["alone"] is None and cost["shared"] is None:
        raise _Bad(f"{at}: neither alone nor shared is known")
    for name in ("alone", "shared"):
        if cost[name] is not None:
            fit = _fields(cost[name], f"{at}.{name}", ("a_us", "b_bps", "at_bytes", "samples"))
            _number(fit["a_us"], f"{at}.{name}.a_us", 0, 1e9)
            _number(fit["b_bps"], f"{at}.{name}.b_bps", 1e-3, 1e18)
            _whole(fit["at_bytes"], f"{at}.{name}.at_bytes", 1, 2 * LARGEST_CLASS)
            _whole(fit["samples"], f"{at}.{name}.samples", 1, 1 << 53)
    return tuple(cost[name] for name in fields[:4])


def _fields(value: object, at: str, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(names):
        given = f"has {_short(sorted(value))}" if isinstance(value, dict) else f"is {_short(value)}"
        raise _Bad(f"{at} {given}: expected an object of {', '.join(names)}")
    return value


def _list(value: object, at: str) -> list[Any]:
    return _checked(value, at, isinstance(value, list), "a list")  # type: ignore[return-value]


def _text(value: object, at: str) -> str:
    fine = isinstance(value, str) and 0 < len(value) <= 200
    return _checked(value, at, fine, "a name")  # type: ignore[return-value]


def _one_of(value: object, at: str, choices: Sequence[str]) -> None:
    _checked(value, at, isinstance(value, str) and value in choices, f"one of {', '.join(choices)}")


def _whole(value: object, at: str, least: int, greatest: int) -> int:
    fine = isinstance(value, int) and not isinstance(value, bool) and least <= value <= greatest
    return _checked(value, at, fine, f"a whole number from {least} to {greatest}")  # type: ignore[return-value]


def _number(value: object, at: str, least: float, greatest: float) -> None:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= greatest
    _checked(value, at, fine, f"a number from {least:g} to {greatest:g}")


def _checked(value: object, at: str, fine: bool, expected: str) -> object:
    if not fine:
        raise _Bad(f"{at} is {_short(value)}: expected {expected}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number that JSON knows")
