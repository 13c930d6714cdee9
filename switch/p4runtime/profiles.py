# SPDX-License-Identifier: Apache-2.0
"""Members and groups of action profiles (specification, section 9.2)."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import actions
from railweave.switch.p4runtime.errors import exhausted, invalid, not_found, require
from railweave.switch.p4runtime.schema import Entities, Kind
from railweave.switch.pipeline import GroupMember
from railweave.switch.pipeline.profiles import Profile

_Update = p4r.Update


class Profiles(Entities):
    """All action profiles of a pipeline, which keeps their members and groups."""

    def write_member(self, kind: Kind, message: p4r.ActionProfileMember) -> None:
        """INSERT, MODIFY or DELETE a member."""
        profile, store = self._named("member", message.action_profile_id, message.member_id)
        number = message.member_id
        if kind == _Update.DELETE:
            store.delete_member(number)
            return
        require(message.HasField("action"), f"member {number} of {profile.preamble.name} needs an action")
        write = store.insert_member if kind == _Update.INSERT else store.modify_member
        write(number, *actions.decode(self._schema, self._table(profile), message.action))

    def write_group(self, kind: Kind, message: p4r.ActionProfileGroup) -> None:
        """INSERT, MODIFY or DELETE a group."""
        profile, store = self._named("group", message.action_profile_id, message.group_id)
        number = message.group_id
        if kind == _Update.DELETE:
            store.delete_group(number)
            return
        ports = self._pipeline.ports
        members = [
            GroupMember(member.member_id, *actions.decode_share(profile, member, ports))
            for member in message.members
        ]
        limit = profile.max_group_size
        require(
            not limit or 0 < message.max_size <= limit,
            f"max_size of a group of {profile.preamble.name} is 1…{limit}, not {message.max_size}",
        )
        size = actions.size_of(profile, members)
        if 0 < message.max_size < size:
            raise exhausted(f"the group has a size of {size}, its max_size is {message.max_size}")
        write = store.insert_group if kind == _Update.INSERT else store.modify_group
        write(number, members, message.max_size)

    def read_members(self, pattern: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """Yield one member, or all of a profile, or all."""
        for profile in self._schema.profiles.chosen(pattern.action_profile_id):
            name = profile.preamble.name
            members = self._pipeline.profiles[name].members()
            for number in [pattern.member_id] if pattern.member_id else members:
                if number not in members:
                    raise not_found(f"action profile {name} has no member {number}")
                message = p4r.ActionProfileMember(action_profile_id=profile.preamble.id, member_id=number)
                action = actions.encode_target(self._schema, self._table(profile), members[number])
                message.action.CopyFrom(action.action)
                yield p4r.Entity(action_profile_member=message)

    def read_groups(self, pattern: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield one group, or all of a selector, or all."""
        found = False
        for profile in self._schema.profiles.chosen(pattern.action_profile_id):
            for number, group in self._pipeline.profiles[profile.preamble.name].groups().items():
                if pattern.group_id not in (0, number):
                    continue
                found = True
                message = p4r.ActionProfileGroup(
                    action_profile_id=profile.preamble.id, group_id=number, max_size=group.max_size
                )
                for member in group.members:
                    part = message.members.add(member_id=member.member_id)
                    actions.encode_share(profile, member, part)
                yield p4r.Entity(action_profile_group=message)
        require(found or not pattern.group_id, f"there is no group {pattern.group_id}", not_found)

    def _named(self, what: str, profile_id: int, number: int) -> tuple[p4i.ActionProfile, Profile]:
        """Return the action profile of a member or group, which needs an id, and the pipeline's."""
        profile = self._schema.profiles[profile_id]
        require(number > 0, f"a {what} of {profile.preamble.name} needs an id greater than 0")
        return profile, self._pipeline.profiles[profile.preamble.name]

    def _table(self, profile: p4i.ActionProfile) -> p4i.Table:
        """Return a table of the profile. All its tables have the same actions."""
        number = profile.preamble.id
        table = next((t for t in self._schema.tables.values() if t.implementation_id == number), None)
        if table is None:
            raise invalid(f"no table uses the action profile {profile.preamble.name}")
        return table
