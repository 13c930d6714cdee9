# SPDX-License-Identifier: Apache-2.0
"""Multicast groups, clone sessions and action profiles of a running switch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from railweave.switch.inspect.client import SwitchClient, Unsupported
from railweave.switch.inspect.tables import call

Row = dict[str, Any]


def groups(client: SwitchClient) -> Row:
    """Return {"multicast", "clone_sessions", "profiles"}; null for a kind that the switch cannot read."""
    return {
        "multicast": _or_none(multicast, client),
        "clone_sessions": _or_none(clone_sessions, client),
        "profiles": _or_none(profiles, client),
    }


def multicast(client: SwitchClient) -> list[Row]:
    """Return multicast groups with their replicas."""
    return [
        {"group": e.multicast_group_id, "replicas": [_replica(replica) for replica in e.replicas]}
        for e in _replication(client, "multicast_group_entry")
    ]


def clone_sessions(client: SwitchClient) -> list[Row]:
    """Return clone sessions with their replicas."""
    return [
        {
            "session": e.session_id,
            "replicas": [_replica(replica) for replica in e.replicas],
            "packet_length": e.packet_length_bytes,
        }
        for e in _replication(client, "clone_session_entry")
    ]


def _replication(client: SwitchClient, kind: str) -> Iterator[Any]:
    pattern = p4r.Entity()
    getattr(pattern.packet_replication_engine_entry, kind).SetInParent()
    return (getattr(found.packet_replication_engine_entry, kind) for found in client.read([pattern]))


def profiles(client: SwitchClient) -> list[Row]:
    """Return action profiles with their members and groups."""
    p4info = client.p4info()
    actions = {action.preamble.id: action for action in p4info.actions}
    found: list[Row] = []
    for profile in p4info.action_profiles:
        number = profile.preamble.id
        member = p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=number))
        members = [entity.action_profile_member for entity in client.read([member])]
        of_groups = []
        if profile.with_selector:
            group = p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=number))
            of_groups = [entity.action_profile_group for entity in client.read([group])]
        found.append(
            {
                "name": profile.preamble.alias or profile.preamble.name,
                "members": [{"member": m.member_id} | call(actions, m.action) for m in members],
                "groups": [
                    {
                        "group": g.group_id,
                        "members": [{"member": m.member_id, "weight": m.weight} for m in g.members],
                    }
                    for g in of_groups
                ],
            }
        )
    return found


def _replica(replica: p4r.Replica) -> Row:
    port = int.from_bytes(replica.port, "big") if replica.port else replica.egress_port
    return {"port": port, "instance": replica.instance}


def _or_none(read: Any, client: SwitchClient) -> list[Row] | None:
    with contextlib.suppress(Unsupported):
        rows: list[Row] = read(client)
        return rows
    return None
