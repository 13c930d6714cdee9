# SPDX-License-Identifier: Apache-2.0
"""Multicast groups, clone sessions and action profiles of a running switch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from finsy.proto import p4r

from railweave.switch.inspect import names
from railweave.switch.inspect.client import SwitchClient, Unsupported
from railweave.switch.inspect.tables import call

Row = dict[str, Any]


def groups(client: SwitchClient) -> dict[str, list[Row] | None]:
    """Return {"multicast", "clone_sessions", "profiles"}; null for a kind that the switch cannot read."""
    clone_fields = {"session": "session_id", "packet_length": "packet_length_bytes"}
    readers = {
        "multicast": partial(_replicas, client, "multicast_group_entry", {"group": "multicast_group_id"}),
        "clone_sessions": partial(_replicas, client, "clone_session_entry", clone_fields),
        "profiles": partial(_profiles, client),
    }
    found: dict[str, list[Row] | None] = dict.fromkeys(readers)
    for kind, read in readers.items():
        with contextlib.suppress(Unsupported):
            found[kind] = read()
    return found


def _replicas(client: SwitchClient, kind: str, fields: Mapping[str, str]) -> list[Row]:
    """Return multicast groups or clone sessions: these fields by other names, and replicas."""
    pattern = p4r.Entity()
    getattr(pattern.packet_replication_engine_entry, kind).SetInParent()
    entries = [getattr(found.packet_replication_engine_entry, kind) for found in client.read([pattern])]
    return [
        {name: getattr(entry, field) for name, field in fields.items()}
        | {"replicas": [{"port": _port(one), "instance": one.instance} for one in entry.replicas]}
        for entry in entries
    ]


def _port(replica: p4r.Replica) -> int:
    return int.from_bytes(replica.port, "big") if replica.port else replica.egress_port


def _profiles(client: SwitchClient) -> list[Row]:
    """Return action profiles with their members and groups."""
    p4info = client.p4info()
    actions = {action.preamble.id: action for action in p4info.actions}
    found: list[Row] = []
    for profile in p4info.action_profiles:
        number = profile.preamble.id
        patterns = [p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=number))]
        if profile.with_selector:
            group = p4r.ActionProfileGroup(action_profile_id=number)
            patterns.append(p4r.Entity(action_profile_group=group))
        row: Row = {"name": names.of(profile), "members": [], "groups": []}
        for entity in client.read(patterns):
            if entity.HasField("action_profile_member"):
                member = entity.action_profile_member
                row["members"].append({"member": member.member_id} | call(actions, member.action))
            else:
                parts = [
                    {"member": m.member_id, "weight": m.weight} for m in entity.action_profile_group.members
                ]
                row["groups"].append({"group": entity.action_profile_group.group_id, "members": parts})
        found.append(row)
    return found
