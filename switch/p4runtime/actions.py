# SPDX-License-Identifier: Apache-2.0
"""Actions of entries: P4Runtime's Action and TableAction to the pipeline's targets, and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import Code, Refused, denied, invalid, require, unimplemented
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.pipeline import GroupMember, Target, WeightedAction

_PORT_BITS = 9  # of v1model's egress_spec

Weighted = p4r.ActionProfileAction | p4r.ActionProfileGroup.Member


def decode(
    schema: Schema, table: p4i.Table, action: p4r.Action, *, default: bool = False
) -> tuple[str, tuple[int, ...]]:
    """Return name and parameters, in order; Refused if no entry (no `default`) may take the action."""
    where, number = f"table {table.preamble.name}", action.action_id
    reference = next((ref for ref in table.action_refs if ref.id == number), None)
    if reference is None:
        raise invalid(f"{where} has no action with id {number}")
    description = schema.actions[number]
    name = description.preamble.name
    if reference.scope == (p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY):
        place = "default action" if default else "an entry's action"
        raise denied(f"{where}: {name} must not be {place}", "choose another action")
    params = {param.param_id: param.value for param in action.params}
    expected = {param.id for param in description.params}
    require(
        params.keys() == expected and len(action.params) == len(expected),
        f"action {name} takes parameters {sorted(expected)}, not {[p.param_id for p in action.params]}",
    )
    return name, tuple(
        bytestrings.number(params[param.id], f"{name}.{param.name}") for param in description.params
    )


def decode_target(
    schema: Schema, table: p4i.Table, action: p4r.TableAction, ports: Collection[int] | None
) -> Target:
    """Return the target of an entry, for the pipeline to check; Refused if the P4Info rules it out."""
    match action.WhichOneof("type"):
        case "action":
            return Target(*decode(schema, table, action.action))
        case "action_profile_member_id":
            require(action.action_profile_member_id, "a member has an id greater than 0")
            return Target(member=action.action_profile_member_id)
        case "action_profile_group_id":
            require(action.action_profile_group_id, "a group has an id greater than 0")
            return Target(group=action.action_profile_group_id)
        case "action_profile_action_set":
            profile = schema.profiles.get(table.implementation_id)
            if profile is None:
                raise invalid(
                    f"table {table.preamble.name} has no action profile: its entries take an action"
                )
            given = action.action_profile_action_set
            return Target(
                action_set=_decode_set(schema, table, profile, given, ports),
                selection_mode=given.action_selection_mode,
                size_semantics=given.size_semantics,
            )
    return Target()


def encode(schema: Schema, table: p4i.Table, name: str, params: Sequence[int]) -> p4r.Action:
    """Return the Action message of one of the table's actions."""
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
    """Return the TableAction of an entry."""
    encoded = p4r.TableAction()
    if target.action is not None:
        encoded.action.CopyFrom(encode(schema, table, target.action, target.params))
    elif target.member is not None:
        encoded.action_profile_member_id = target.member
    elif target.group is not None:
        encoded.action_profile_group_id = target.group
    elif target.action_set is not None:
        profile = schema.profiles[table.implementation_id]
        made = encoded.action_profile_action_set
        made.SetInParent()
        made.action_selection_mode = target.selection_mode  # type: ignore[assignment]
        made.size_semantics = target.size_semantics  # type: ignore[assignment]
        for one in target.action_set:
            part = made.action_profile_actions.add()
            part.action.CopyFrom(encode(schema, table, one.action, one.params))
            encode_share(profile, one, part)
    return encoded


def decode_share(
    profile: p4i.ActionProfile, given: Weighted, ports: Collection[int] | None
) -> tuple[int, int | None, bool]:
    """Return weight and watched port of a part of a group, and whether the deprecated field names the port.

    Refused if the P4Info rules the weight out, or if the port is not among `ports`.
    """
    name, weight = profile.preamble.name, given.weight
    if profile.weights_disallowed:
        require(weight == 0, f"action profile {name} allows no weights, but {weight} was given")
        weight = 1
    require(weight > 0, f"a weight must be greater than 0, not {weight}")
    greatest = profile.sum_of_members.max_member_weight
    require(not greatest or weight <= greatest, f"a weight of {name} is at most {greatest}, not {weight}")
    if given.watch_port:
        port = bytestrings.decode(given.watch_port, _PORT_BITS, "a watched port")
    elif given.watch:
        port = given.watch
    else:
        return weight, None, False
    exists = port >= 0 if ports is None else port in ports
    require(exists, f"port {port} cannot be watched: the switch has no such port")
    return weight, port, bool(given.watch)


def encode_share(profile: p4i.ActionProfile, one: GroupMember | WeightedAction, message: Weighted) -> None:
    """Write weight and watched port of a part of a group, as `decode_share` reads them."""
    message.weight = 0 if profile.weights_disallowed else one.weight
    if one.watch_port is None:
        return
    if one.old_watch:
        message.watch = one.watch_port
    else:
        message.watch_port = bytestrings.encode(one.watch_port)


def size_of(profile: p4i.ActionProfile, parts: Iterable[GroupMember | WeightedAction]) -> int:
    """Return the size of a group as the profile counts it: members, or their weights."""
    return sum(1 if profile.HasField("sum_of_members") else part.weight for part in parts)


def _decode_set(
    schema: Schema,
    table: p4i.Table,
    profile: p4i.ActionProfile,
    given: p4r.ActionProfileActionSet,
    ports: Collection[int] | None,
) -> tuple[WeightedAction, ...]:
    modes, sizes = p4r.ActionProfileActionSet.ActionSelectionMode, p4r.ActionProfileActionSet.SizeSemantics
    own = sizes.SUM_OF_MEMBERS if profile.HasField("sum_of_members") else sizes.SUM_OF_WEIGHTS
    profile_name, mode, semantics = profile.preamble.name, given.action_selection_mode, given.size_semantics
    if mode not in (modes.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR, modes.HASH):
        raise unimplemented(f"a set of {profile_name} is selected from by HASH, not by mode {mode}")
    if semantics not in (sizes.DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR, own):
        raise unimplemented(
            f"a set of {profile_name} has the size semantics {sizes.Name(own)}, not {semantics}"
        )
    weighted = []
    for one in given.action_profile_actions:
        name, params = decode(schema, table, one.action)
        weighted.append(WeightedAction(name, params, *decode_share(profile, one, ports)))
    size, limit = size_of(profile, weighted), profile.max_group_size
    require(
        not limit or size <= limit,
        f"a group of {profile_name} has a size of at most {limit}, not {size}",
    )
    return tuple(weighted)
