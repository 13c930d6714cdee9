# SPDX-License-Identifier: Apache-2.0
"""What entries do: P4Runtime's Action and TableAction to names, parameters and targets, and back."""

from __future__ import annotations

from collections.abc import Sequence

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import Code, Refused, denied, invalid, require, unimplemented
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.pipeline import Target, WeightedAction

_PORT_BITS = 9  # of v1model's egress_spec


def decode(
    schema: Schema, table: p4i.Table, action: p4r.Action, *, default: bool
) -> tuple[str, tuple[int, ...]]:
    """Name and parameters, in order; Refused if the table may not take the action as entry (or `default`)."""
    description = schema.actions.get(action.action_id)
    if description is None:
        raise invalid(f"table {table.preamble.name} has no action with id {action.action_id}")
    _require_allowed(table, description, default=default)
    params = {param.param_id: param.value for param in action.params}
    name = description.preamble.name
    expected = {param.id for param in description.params}
    require(
        params.keys() == expected and len(action.params) == len(expected),
        f"action {name} takes parameters {sorted(expected)}, not {[p.param_id for p in action.params]}",
    )
    return name, tuple(
        bytestrings.decode(params[param.id], param.bitwidth, f"{name}.{param.name}")
        for param in description.params
    )


def decode_target(schema: Schema, table: p4i.Table, action: p4r.TableAction) -> Target:
    """What an entry of the table shall do; Refused if that is nothing for this table."""
    name, kind = table.preamble.name, action.WhichOneof("type")
    require(kind is not None, f"an entry of {name} needs an action")
    profile = schema.profiles.get(table.implementation_id)
    if profile is None:
        require(kind == "action", f"{kind}: table {name} has no action profile, its entries take actions")
        return Target(*decode(schema, table, action.action, default=False))
    require(kind != "action", f"table {name} has an action profile: give a member, group or action set")
    if kind == "action_profile_member_id":
        return Target(member=_identity(action.action_profile_member_id, "member"))
    require(
        profile.with_selector,
        f"{kind}: action profile {profile.preamble.name} has no selector, so entries name members only",
    )
    if kind == "action_profile_group_id":
        return Target(group=_identity(action.action_profile_group_id, "group"))
    return Target(action_set=_decode_set(schema, table, profile, action.action_profile_action_set))


def encode(schema: Schema, table: p4i.Table, name: str, params: Sequence[int]) -> p4r.Action:
    """The Action message of one of the table's actions."""
    candidates = (schema.actions[reference.id] for reference in table.action_refs)
    description = next((action for action in candidates if action.preamble.name == name), None)
    if description is None:
        raise Refused(
            Code.INTERNAL, f"table {table.preamble.name} has an action {name} that its P4Info lacks"
        )
    encoded = p4r.Action(action_id=description.preamble.id)
    for param, value in zip(description.params, params, strict=True):
        encoded.params.add(param_id=param.id, value=bytestrings.encode(value))
    return encoded


def encode_target(schema: Schema, table: p4i.Table, target: Target) -> p4r.TableAction:
    """The TableAction of an entry; that of a one-shot set is for its writer to remember."""
    if target.member is not None:
        return p4r.TableAction(action_profile_member_id=target.member)
    if target.group is not None:
        return p4r.TableAction(action_profile_group_id=target.group)
    return p4r.TableAction(action=encode(schema, table, target.action or "", target.params))


def check_weight(profile: p4i.ActionProfile, weight: int) -> None:
    """Refuse a weight that the profile's P4Info rules out."""
    name = profile.preamble.name
    if profile.weights_disallowed:
        require(weight == 0, f"action profile {name} allows no weights, but {weight} was given")
        return
    require(weight > 0, f"a weight must be greater than 0, not {weight}")
    greatest = profile.sum_of_members.max_member_weight
    require(not greatest or weight <= greatest, f"a weight of {name} is at most {greatest}, not {weight}")


def size_of(profile: p4i.ActionProfile, weights: Sequence[int]) -> int:
    """The size of a group as the profile counts it: members, or their weights."""
    return len(weights) if profile.HasField("sum_of_members") else sum(max(1, weight) for weight in weights)


def watched_port(message: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member) -> int | None:
    """The port that a member lives and dies with, if one is named."""
    if message.WhichOneof("watch_kind") == "watch":
        require(message.watch >= 0, f"a watched port is 0 or more, not {message.watch}")
        return message.watch or None
    return (
        bytestrings.decode(message.watch_port, _PORT_BITS, "a watched port") if message.watch_port else None
    )


def _decode_set(
    schema: Schema, table: p4i.Table, profile: p4i.ActionProfile, given: p4r.ActionProfileActionSet
) -> tuple[WeightedAction, ...]:
    _require_plain_set(given)
    weighted = []
    for one in given.action_profile_actions:
        check_weight(profile, one.weight)
        name, params = decode(schema, table, one.action, default=False)
        weighted.append(WeightedAction(name, params, max(1, one.weight), watched_port(one)))
    size = size_of(profile, [one.weight for one in given.action_profile_actions])
    limit = profile.max_group_size
    require(
        not limit or size <= limit,
        f"a group of {profile.preamble.name} has a size of at most {limit}, not {size}",
    )
    return tuple(weighted)


def _require_plain_set(given: p4r.ActionProfileActionSet) -> None:
    """Refuse what later versions of the specification have added to one-shot sets."""
    unknown = [field.name for field, _ in given.ListFields() if field.name != "action_profile_actions"]
    if unknown:
        raise unimplemented(f"one-shot action sets with {', '.join(unknown)} are not supported")


def _identity(number: int, what: str) -> int:
    require(number != 0, f"a {what} has an id greater than 0")
    return number


def _require_allowed(table: p4i.Table, action: p4i.Action, *, default: bool) -> None:
    reference = next((ref for ref in table.action_refs if ref.id == action.preamble.id), None)
    where = f"table {table.preamble.name}"
    if reference is None:
        raise invalid(f"{where} has no action {action.preamble.name}")
    forbidden = p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY
    place = "default action" if default else "an entry's action"
    require(
        reference.scope != forbidden,
        f"{where}: {action.preamble.name} must not be {place}",
        denied,
    )
