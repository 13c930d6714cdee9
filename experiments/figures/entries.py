# SPDX-License-Identifier: Apache-2.0
"""Entries of a file that stand for several: templates, lists of values, and changes for the quick set.

An entry, and a table in a list at any depth, may have the keys `like`, `quick` and `each`. `like` names a
template: the table takes its keys, unless it has them itself. `quick` has the keys that differ in the quick
set, or is false if the quick set leaves the table out. `each` has names with a list of values each: the table
is repeated for every combination of values. A value that is a table gives values to the names of its keys.

`{name}` in a text becomes the value of that name. A text with nothing else becomes the value itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from railweave.experiments.errors import OptionError
from railweave.experiments.figures import models
from railweave.experiments.units import parse_sizes

ALONE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Filler:
    """Fills in values where a file has the name of a value."""

    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quick: bool = False
    names: Mapping[str, Any] = field(default_factory=dict)

    def fill(self, value: Any) -> Any:
        """Return the value with its names replaced. Raise OptionError for an unknown name."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list | tuple):
            return [made for item in value for made in self._repeated(item)]
        if isinstance(value, Mapping):
            return {key: self.fill(item) for key, item in value.items()}
        return value

    def _text(self, text: str) -> Any:
        try:
            alone = ALONE.fullmatch(text)
            return self.names[alone[1]] if alone else text.format_map(self.names)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise OptionError(
                f"text {text!r}",
                f"in braces only the names {', '.join(self.names) or '(none here)'}",
                "add the name to the key each, or double the braces",
            ) from None

    def _repeated(self, item: Any) -> Iterator[Any]:
        if not isinstance(item, Mapping):
            yield self.fill(item)
            return
        table = self._with_template(item)
        fewer = table.pop("quick", {})
        if self.quick and fewer is False:
            return
        if isinstance(fewer, Mapping):
            table = merged(table, fewer) if self.quick else table
        elif fewer is not False:
            raise OptionError(f"quick = {fewer!r}", "a table of keys, or false", "correct the key quick")
        each = table.pop("each", {})
        if not isinstance(each, Mapping) or not all(isinstance(values, list) for values in each.values()):
            raise OptionError(f"each = {each!r}", "names with a list of values each", "correct the key each")
        for values in product(*each.values()):
            given = [
                value if isinstance(value, Mapping) else {name: value}
                for name, value in zip(each, values, strict=True)
            ]
            names = {name: value for of in given for name, value in of.items()}
            yield replace(self, names={**self.names, **names}).fill(table)

    def _with_template(self, table: Mapping[str, Any]) -> dict[str, Any]:
        name = table.get("like")
        if name is not None and name not in self.templates:
            raise OptionError(
                f"like = {name!r}", f"one of the templates {', '.join(self.templates)}", "correct the name"
            )
        own = {key: value for key, value in table.items() if key != "like"}
        return merged(self.templates[name], own) if name is not None else own


def listed(entries: Any, key: str) -> Any:
    """Return entries as a list: tables that have their name as key get it as the value of `key`."""
    if isinstance(entries, Mapping):
        return [{key: name, **table} for name, table in entries.items()]
    return entries


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with changes, also of the tables in it."""
    found = dict(table)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found


def scenario_values(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's values from its entry, which has short forms of contenders and workloads.

    A contender that is a text is railweave on the rail of that name. Sizes that are a text are those of the
    command line. `model` and `scale` of a workload stand for the messages and the computation of a step.
    """
    values = dict(entry)
    contenders, work = entry.get("contenders"), entry.get("workload")
    if isinstance(contenders, list):
        alone = [{"name": each, "rails": [each]} if isinstance(each, str) else each for each in contenders]
        values["contenders"] = [{"kind": "railweave", **each} for each in alone]
    if isinstance(work, Mapping):
        values["workload"] = _workload(work)
    return values


def _workload(entry: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(entry)
    if isinstance(entry.get("sizes"), str):
        values["sizes"] = parse_sizes(entry["sizes"])
    if "model" in entry:
        known = models.load()
        if entry["model"] not in known:
            raise OptionError(f"model {entry['model']!r}", f"one of {', '.join(known)}", "correct the model")
        model = known[entry["model"]]
        values["messages"] = list(model.buckets(values.pop("scale", 1)))
        values["compute_s"] = round(model.compute_s, 4)
    return values
