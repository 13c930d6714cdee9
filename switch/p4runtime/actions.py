# SPDX-License-Identifier: Apache-2.0
"""Actions of table entries: P4Runtime's TableAction to a name with parameters and back."""

from __future__ import annotations

from collections.abc import Sequence

from finsy.proto import p4i, p4r
from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import Code, Refused, invalid, require, unimplemented
from railweave.switch.p4runtime.schema import Schema


def decode(
    schema: Schema, table: p4i.Table, action: p4r.TableAction, *, default: bool
) -> tuple[str, list[int]]:
    """Name and parameters, in order; Refused if the table may not take the action as entry (or `default`)."""
    kind = action.WhichOneof("type")
    require(kind is not None, invalid, f"an entry of {table.preamble.name} needs an action")
    if kind != "action":
        raise unimplemented(f"{kind}: action profiles are not supported")
    given = action.action
    description = schema.action(given.action_id)
    _require_allowed(table, description, default=default)
    params = {param.param_id: param.value for param in given.params}
    name = description.preamble.name
    expected = {param.id for param in description.params}
    require(
        params.keys() == expected and len(given.params) == len(expected),
        invalid,
        f"action {name} takes parameters {sorted(expected)}, given were {[p.param_id for p in given.params]}",
    )
    return name, [
        bytestrings.decode(params[param.id], param.bitwidth, f"{name}.{param.name}")
        for param in description.params
    ]


def encode(schema: Schema, table: p4i.Table, name: str, params: Sequence[int]) -> p4r.TableAction:
    """The TableAction of one of the table's actions."""
    candidates = (schema.actions[reference.id] for reference in table.action_refs)
    description = next((action for action in candidates if action.preamble.name == name), None)
    if description is None:
        raise Refused(
            Code.INTERNAL, f"table {table.preamble.name} has an action {name} that its P4Info lacks"
        )
    encoded = p4r.TableAction()
    encoded.action.action_id = description.preamble.id
    for param, value in zip(description.params, params, strict=True):
        encoded.action.params.add(param_id=param.id, value=bytestrings.encode(value))
    return encoded


def _require_allowed(table: p4i.Table, action: p4i.Action, *, default: bool) -> None:
    reference = next((ref for ref in table.action_refs if ref.id == action.preamble.id), None)
    where = f"table {table.preamble.name}"
    if reference is None:
        raise invalid(f"{where} has no action {action.preamble.name}")
    forbidden = p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY
    place = "default action" if default else "an entry's action"
    require(
        reference.scope != forbidden,
        lambda text: Refused(Code.PERMISSION_DENIED, text),
        f"{where}: {action.preamble.name} must not be {place}",
    )
