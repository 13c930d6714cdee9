# SPDX-License-Identifier: Apache-2.0
"""Members and groups of action profiles (specification, section 9.2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import actions
from railweave.switch.p4runtime.errors import exhausted, invalid, not_found, require, require_fits
from railweave.switch.p4runtime.schema import Kind, Schema
from railweave.switch.pipeline import GroupMember, Pipeline

_Update = p4r.Update


class Profiles:
    """All action profiles of a pipeline. Groups are kept as they were written, to be read back alike."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """There are no members and no groups."""
        self._schema = schema
        self._pipeline = pipeline
        self._groups: dict[tuple[int, int], p4r.ActionProfileGroup] = {}  # by profile and group
        self._one_shots: dict[int, set[tuple[int, int]]] = {}  # by profile: table and handle

    def snapshot(self, pipeline: Pipeline) -> Profiles:
        """Members and groups as they are now, to be read only; `pipeline` is a snapshot, too."""
        view = copy.copy(self)
        view._pipeline, view._groups = pipeline, dict(self._groups)
        return view

    def write_member(self, kind: Kind, message: p4r.ActionProfileMember) -> None:
        """INSERT, MODIFY or DELETE a member."""
        profile = self._schema.profiles[message.action_profile_id]
        name, number = profile.preamble.name, message.member_id
        require(number > 0, f"a member of {name} needs an id greater than 0")
        self.require_members(profile)
        if kind == _Update.DELETE:
            self._pipeline.profiles.delete_member(name, number)
            return
        require(message.HasField("action"), f"member {number} of {name} needs an action")
        action, params = actions.decode(self._schema, self._table(profile), message.action, default=False)
        if kind == _Update.INSERT:
            self._pipeline.profiles.insert_member(name, number, action, params)
        else:
            self._pipeline.profiles.modify_member(name, number, action, params)

    def write_group(self, kind: Kind, message: p4r.ActionProfileGroup) -> None:
        """INSERT, MODIFY or DELETE a group."""
        profile = self._schema.profiles[message.action_profile_id]
        name, number = profile.preamble.name, message.group_id
        require(number > 0, f"a group of {name} needs an id greater than 0")
        require(profile.with_selector, f"action profile {name} has no selector, hence no groups")
        self.require_members(profile)
        key = (message.action_profile_id, number)
        require_fits(kind, f"group {number} of {name}", exists=key in self._groups)
        if kind == _Update.DELETE:
            self._pipeline.profiles.delete_group(name, number)
            del self._groups[key]
            return
        members = self._members(profile, message)
        if kind == _Update.INSERT:
            self._pipeline.profiles.insert_group(name, number, members, message.max_size)
        else:
            was = self._groups[key].max_size
            require(message.max_size == was, f"max_size of group {number} is {was} and cannot be changed")
            self._pipeline.profiles.modify_group(name, number, members, message.max_size)
        self._groups[key] = copy.deepcopy(message)

    def read_members(self, pattern: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """One member, or all of a profile, or all."""
        for profile in self._schema.profiles.chosen(pattern.action_profile_id):
            name, table = profile.preamble.name, self._table(profile)
            members = self._pipeline.profiles.members(name)
            wanted = [pattern.member_id] if pattern.member_id else list(members)
            for number in wanted:
                if number not in members:
                    raise not_found(f"action profile {name} has no member {number}")
                entity = p4r.Entity()
                entity.action_profile_member.action_profile_id = profile.preamble.id
                entity.action_profile_member.member_id = number
                action = actions.encode(self._schema, table, members[number].action, members[number].params)
                entity.action_profile_member.action.CopyFrom(action)
                yield entity

    def read_groups(self, pattern: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """One group, or all of a selector, or all."""
        profiles = {
            profile.preamble.id for profile in self._schema.profiles.chosen(pattern.action_profile_id)
        }
        found = [
            group
            for (profile, number), group in self._groups.items()
            if profile in profiles and pattern.group_id in (0, number)
        ]
        if pattern.group_id and not found:
            raise not_found(f"there is no group {pattern.group_id}")
        for group in found:
            yield p4r.Entity(action_profile_group=group)

    def require_members(self, profile: p4i.ActionProfile) -> None:
        """Refuse unless the profile is programmed by members and groups, as opposed to one-shot sets."""
        require(
            not self._one_shots.get(profile.preamble.id),
            f"the tables of {profile.preamble.name} are programmed by action sets: no members, no groups",
        )

    def require_one_shot(self, profile_id: int) -> None:
        """Refuse unless the profile is free of members and groups."""
        name = self._schema.profiles[profile_id].preamble.name
        require(
            not self._pipeline.profiles.members(name),
            f"the tables of {name} are programmed by members and groups: no action sets",
        )

    def count_one_shot(self, profile_id: int, table_id: int, handle: int, *, present: bool) -> None:
        """Remember which entries hold one-shot sets."""
        entries = self._one_shots.setdefault(profile_id, set())
        if present:
            entries.add((table_id, handle))
        else:
            entries.discard((table_id, handle))

    def _members(self, profile: p4i.ActionProfile, message: p4r.ActionProfileGroup) -> list[GroupMember]:
        name = profile.preamble.name
        known = self._pipeline.profiles.members(name)
        members: dict[int, GroupMember] = {}
        for member in message.members:
            number = member.member_id
            if number not in known:
                raise not_found(f"action profile {name} has no member {number}")
            require(number not in members, f"member {number} is given twice: use weights")
            actions.check_weight(profile, member.weight)
            members[number] = GroupMember(number, max(1, member.weight), actions.watched_port(member))
        limit = profile.max_group_size
        require(
            not limit or 0 < message.max_size <= limit,
            f"max_size of a group of {name} is 1…{limit}, not {message.max_size}",
        )
        require(message.max_size >= 0, f"max_size is 0 or more, not {message.max_size}")
        size = actions.size_of(profile, [member.weight for member in message.members])
        if message.max_size and size > message.max_size:
            raise exhausted(f"the group has a size of {size}, its max_size is {message.max_size}")
        return list(members.values())

    def _table(self, profile: p4i.ActionProfile) -> p4i.Table:
        """A table of the profile: all of them have the same actions."""
        number = profile.preamble.id
        table = next((t for t in self._schema.tables.values() if t.implementation_id == number), None)
        if table is None:
            raise invalid(f"no table uses the action profile {profile.preamble.name}")
        return table
