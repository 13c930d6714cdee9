# SPDX-License-Identifier: Apache-2.0
"""Entries of a file that stand for several: templates, lists of values, and changes for the quick set.

A table in a list may have the keys `like`, `quick` and `each`, at any depth. `like` names a template: the
table takes its keys, unless it has them itself. `quick` has the keys that differ in the quick set, or is
false if the quick set leaves the table out. `each` has names with a list of values each: the table is
repeated for every combination of values. A value that is a table gives values to the names of its keys.

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
        except (KeyError, ValueError, IndexError):
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
        if self.quick:
            table = merged(table, fewer)
        each = table.pop("each", {})
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


def merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with changes, also of the tables in it."""
    found = dict(table)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found


def scenario_values(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's values from its entry, which has short forms of contenders and workloads.

    A contender that is a text is railweave on the rail of that name. Sizes may be a range, with a factor from
    each size to the next. `model` and `scale` stand for the messages and the computation of a step.
    """
    contenders = [
        {"name": each, "rails": [each]} if isinstance(each, str) else each for each in entry["contenders"]
    ]
    work = dict(entry["workload"])
    if isinstance(sizes := work.get("sizes"), Mapping):
        work["sizes"] = _powers(sizes["from"], sizes["to"], sizes["factor"])
    if "model" in work:
        model = models.load()[work["model"]]
        work["messages"] = list(model.buckets(work.pop("scale")))
        work["compute_s"] = round(model.compute_s, 4)
    return {
        **entry, "contenders": [{"kind": "railweave", **each} for each in contenders], "workload": work
    }  # fmt: skip


def _powers(size: int, last: int, factor: int) -> list[int]:
    return [size, *_powers(size * factor, last, factor)] if size <= last else []
