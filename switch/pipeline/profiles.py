# SPDX-License-Identifier: Apache-2.0
"""Action profiles: members, groups and one-shot sets, and the tables' entries that refer to them.

Which member of a group a packet gets is the hash of the selector's fields modulo the group's size, counted
in the order of BMv2's member handles: each copy of a member (its weight says how many it has) takes the
lowest handle that is free, as BMv2's P4Runtime server makes it do.
"""

from __future__ import annotations

import copy
import heapq
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from railweave._native.engine import GROUP, Engine
from railweave.switch.errors import DuplicateEntry, InUse, TableFull, UnknownEntry
from railweave.switch.pipeline.parameters import arguments, words
from railweave.switch.pipeline.values import Group, GroupMember, Member, Params, Target
from railweave.switch.program import ProfileInfo, Program, TableInfo

MAX_WEIGHT = 1 << 16  # of a group
MAX_CHOICES = 1 << 18  # of all groups of a profile together

Place = tuple[str, int | None]  # an entry: table and handle, or None for the table's default


class _Numbers:
    """Gives out the lowest number that is free."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def give(self, number: int) -> None:
        heapq.heappush(self._free, number)


@dataclass
class _Member:
    value: Member
    handles: list[int]
    weights: Counter[int] = field(default_factory=Counter)  # in groups
    users: set[Place] = field(default_factory=set)


@dataclass
class _Group:
    number: int  # the engine's
    value: Group
    users: set[Place] = field(default_factory=set)


@dataclass(frozen=True)
class _Set:
    """A one-shot set: members of its own, in a group of its own."""

    number: int
    handles: tuple[int, ...]
    choices: tuple[tuple[Member, int | None], ...]  # with watch ports, in the order of the handles


@dataclass
class _Profile:
    info: ProfileInfo
    tables: tuple[TableInfo, ...]
    members: dict[int, _Member] = field(default_factory=dict)
    groups: dict[int, _Group] = field(default_factory=dict)
    sets: dict[Place, _Set] = field(default_factory=dict)
    handles: _Numbers = field(default_factory=_Numbers)
    numbers: _Numbers = field(default_factory=_Numbers)

    @property
    def choices(self) -> int:
        """How many the engine holds."""
        weights = (m.weight for group in self.groups.values() for m in group.value.members)
        return sum(weights) + sum(len(one.handles) for one in self.sets.values())

    def member(self, number: int) -> _Member:
        if number not in self.members:
            raise UnknownEntry(f"action profile {self.info.name!r} has no member {number}")
        return self.members[number]

    def group(self, number: int) -> _Group:
        if number not in self.groups:
            raise UnknownEntry(f"action profile {self.info.name!r} has no group {number}")
        return self.groups[number]

    def need_room(self, weight: int) -> None:
        if weight > MAX_WEIGHT or self.choices + weight > MAX_CHOICES:
            raise TableFull(
                f"action profile {self.info.name!r}: weights of a group sum to at most {MAX_WEIGHT}, "
                f"of all groups to {MAX_CHOICES}"
            )


class Profiles:
    """All action profiles of a pipeline."""

    def __init__(self, program: Program, engine: Engine, lock: threading.RLock) -> None:
        """They are empty at first."""
        self._program = program
        self._engine = engine
        self._lock = lock
        tables = program.tables.values()
        self._profiles = {
            name: _Profile(info, tuple(table for table in tables if table.profile == name))
            for name, info in program.profiles.items()
        }
        self._down: set[int] = set()

    # Members.

    def insert_member(self, profile: str, member_id: int, action: str, params: Params = ()) -> None:
        """Add a member to an action profile."""
        with self._lock:
            of = self._profile(profile)
            if member_id in of.members:
                raise DuplicateEntry(f"action profile {profile!r} has a member {member_id} already")
            if of.info.size and len(of.members) >= of.info.size:
                raise TableFull(f"action profile {profile!r} is full: it holds {of.info.size} members")
            value = _member(of, action, params)
            of.members[member_id] = _Member(value, [of.handles.take()])

    def modify_member(self, profile: str, member_id: int, action: str, params: Params = ()) -> None:
        """Give a member another action; entries and groups follow."""
        with self._lock:
            of = self._profile(profile)
            member = of.member(member_id)
            member.value = _member(of, action, params)
            for table, handle in member.users:
                info = self._program.table(table)
                self._point(info, handle, *_call(info, member.value))
            for group in of.groups.values():
                if any(one.member_id == member_id for one in group.value.members):
                    self._publish(of, group)

    def delete_member(self, profile: str, member_id: int) -> None:
        """Remove a member that no entry and no group refers to."""
        with self._lock:
            of = self._profile(profile)
            member = of.member(member_id)
            if member.users or member.weights.total():
                raise InUse(f"member {member_id} of action profile {profile!r} is in use")
            for handle in member.handles:
                of.handles.give(handle)
            del of.members[member_id]

    def members(self, profile: str) -> dict[int, Member]:
        """All members by id."""
        with self._lock:
            return {number: member.value for number, member in self._profile(profile).members.items()}

    # Groups.

    def insert_group(
        self, profile: str, group_id: int, members: Sequence[GroupMember | tuple[int, ...]], max_size: int = 0
    ) -> None:
        """Add a group: (member id, weight, watch port or None) of each; it may be empty."""
        with self._lock:
            of = self._profile(profile)
            if not of.info.selector:
                raise ValueError(f"action profile {profile!r} has no selector, and so no groups")
            if group_id in of.groups:
                raise DuplicateEntry(f"action profile {profile!r} has a group {group_id} already")
            value = _group(of, members, max_size)
            if len(of.groups) + len(of.sets) >= MAX_WEIGHT:
                raise TableFull(f"action profile {profile!r} holds at most {MAX_WEIGHT} groups")
            of.groups[group_id] = _Group(of.numbers.take(), Group((), max_size))
            self._regroup(of, of.groups[group_id], value)

    def modify_group(
        self,
        profile: str,
        group_id: int,
        members: Sequence[GroupMember | tuple[int, ...]],
        max_size: int | None = None,
    ) -> None:
        """Give a group other members; its `max_size` stays as it is (None, or the same)."""
        with self._lock:
            of = self._profile(profile)
            group = of.group(group_id)
            if max_size not in (None, 0, group.value.max_size):
                raise ValueError(f"the size of group {group_id} is {group.value.max_size} and cannot change")
            self._regroup(of, group, _group(of, members, group.value.max_size))

    def delete_group(self, profile: str, group_id: int) -> None:
        """Remove a group that no entry refers to."""
        with self._lock:
            of = self._profile(profile)
            group = of.group(group_id)
            if group.users:
                raise InUse(f"group {group_id} of action profile {profile!r} is in use")
            self._regroup(of, group, Group((), group.value.max_size))
            of.numbers.give(group.number)
            del of.groups[group_id]

    def groups(self, profile: str) -> dict[int, Group]:
        """All groups by id."""
        with self._lock:
            return {number: group.value for number, group in self._profile(profile).groups.items()}

    def snapshot(self) -> Self:
        """Members and groups as they are now, to be read only."""
        view = copy.copy(self)
        view._profiles = {
            name: replace(
                of,
                members={number: replace(member) for number, member in of.members.items()},
                groups={number: replace(group) for number, group in of.groups.items()},
            )
            for name, of in self._profiles.items()
        }
        return view

    def set_port_up(self, port: int, up: bool) -> None:
        """Members that watch a port take part in their groups while it is up."""
        with self._lock:
            if up == (port not in self._down):
                return
            (self._down.discard if up else self._down.add)(port)
            for of in self._profiles.values():
                for group in of.groups.values():
                    if any(member.watch_port == port for member in group.value.members):
                        self._publish(of, group)
                for one in of.sets.values():
                    if any(watch == port for _, watch in one.choices):
                        self._publish_set(of, one)

    def _regroup(self, of: _Profile, group: _Group, value: Group) -> None:
        """Change members; copies of them come before others go, in the order of their ids."""
        for one in group.value.members:
            of.members[one.member_id].weights[one.weight] -= 1
        for one in sorted(value.members):
            member = of.members[one.member_id]
            while len(member.handles) < one.weight:
                member.handles.append(of.handles.take())
            member.weights[one.weight] += 1
        for number in sorted({one.member_id for one in (*group.value.members, *value.members)}):
            member = of.members[number]
            member.weights = +member.weights
            while len(member.handles) > max(member.weights, default=1):
                of.handles.give(member.handles.pop())
        group.value = value
        self._publish(of, group)

    def _publish(self, of: _Profile, group: _Group) -> None:
        copies = []
        for one in group.value.members:
            if one.watch_port in self._down:
                continue
            member = of.members[one.member_id]
            copies += [(handle, member.value) for handle in member.handles[: one.weight]]
        copies.sort(key=lambda pair: pair[0])
        self._set_choices(of, group.number, [value for _, value in copies])

    def _publish_set(self, of: _Profile, one: _Set) -> None:
        values = [value for value, watch in one.choices if watch not in self._down]
        self._set_choices(of, one.number, values)

    def _set_choices(self, of: _Profile, number: int, values: Iterable[Member]) -> None:
        values = list(values)
        for table in of.tables:
            self._engine.set_group(table.index, number, [_call(table, value) for value in values])

    def _profile(self, name: str) -> _Profile:
        if name not in self._profiles:
            raise ValueError(f"no action profile {name!r}; there are {', '.join(sorted(self._profiles))}")
        return self._profiles[name]

    # References of entries.

    def use(self, info: TableInfo, handle: int | None, target: Target, call: _Call) -> None:
        """Note that an entry (None: the default) refers to a target, which `call_of` made a call of."""
        if info.profile is None:
            return
        of = self._profile(info.profile)
        if target.member is not None:
            of.members[target.member].users.add((info.name, handle))
        elif target.group is not None:
            of.groups[target.group].users.add((info.name, handle))
        elif call.one_shot is not None:
            of.sets[info.name, handle] = call.one_shot

    def release(self, info: TableInfo, handle: int | None, target: Target | None) -> None:
        """Forget that an entry (None: the default) refers to a target."""
        if target is None or info.profile is None:
            return
        of, place = self._profile(info.profile), (info.name, handle)
        if target.member is not None:
            of.members[target.member].users.discard(place)
        elif target.group is not None:
            of.groups[target.group].users.discard(place)
        elif place in of.sets:
            self._delete_set(of, of.sets.pop(place))

    def _delete_set(self, of: _Profile, one: _Set) -> None:
        self._set_choices(of, one.number, ())
        of.numbers.give(one.number)
        for handle in one.handles:
            of.handles.give(handle)

    def call_of(self, info: TableInfo, target: Target) -> _Call:
        """The call in the engine's format; ValueError if the table does not allow it."""
        if info.profile is None or (target.action is not None and target.action_set is None):
            if target.action is None:
                raise ValueError(f"table {info.name!r} has no action profile: its entries take an action")
            number, description = info.action(target.action)
            return _Call(number, words(description, target.params))
        of = self._profile(info.profile)
        if target.member is not None:
            return _Call(*_call(info, of.member(target.member).value))
        if not of.info.selector:
            raise ValueError(f"action profile {info.profile!r} has no selector: name a member")
        if target.group is not None:
            return _Call(GROUP, [of.group(target.group).number])
        one = self._one_shot(of, target)
        return _Call(GROUP, [one.number], one)

    def _one_shot(self, of: _Profile, target: Target) -> _Set:
        actions = target.action_set or ()
        if any(action.weight < 1 for action in actions):
            raise ValueError("the weight of an action is at least 1")
        of.need_room(sum(action.weight for action in actions))
        made = [(_member(of, action.action, action.params), action) for action in actions]
        choices = tuple((value, action.watch_port) for value, action in made for _ in range(action.weight))
        copies = sorted((of.handles.take(), *choice) for choice in choices) if choices else []
        one = _Set(
            of.numbers.take(),
            tuple(handle for handle, _, _ in copies),
            tuple((value, watch) for _, value, watch in copies),
        )
        self._publish_set(of, one)
        return one

    def _point(self, info: TableInfo, handle: int | None, number: int, parameters: list[int]) -> None:
        if handle is None:
            self._engine.set_default(info.index, number, parameters)
        else:
            self._engine.modify(info.index, handle, number, parameters)


@dataclass(frozen=True)
class _Call:
    """An action of the engine; `one_shot` is the set that it represents, if any."""

    number: int
    parameters: list[int]
    one_shot: _Set | None = None


def _call(table: TableInfo, member: Member) -> tuple[int, list[int]]:
    number, description = table.action(member.action)
    return number, words(description, member.params)


def _member(of: _Profile, action: str, params: Params) -> Member:
    if not of.tables:
        raise ValueError(f"no table uses action profile {of.info.name!r}")
    for table in of.tables:
        _, description = table.action(action)
    return Member(action, arguments(description, params))


def _group(of: _Profile, members: Sequence[GroupMember | tuple[int, ...]], max_size: int) -> Group:
    value = Group(tuple(GroupMember(*member) for member in members), max_size)
    if max_size < 0 or any(member.weight < 1 for member in value.members):
        raise ValueError("the size of a group is not negative, and the weight of a member is at least 1")
    if len({member.member_id for member in value.members}) != len(value.members):
        raise ValueError("a member is named twice in a group: give it a weight")
    for member in value.members:
        of.member(member.member_id)
    weight = sum(member.weight for member in value.members)
    if max_size and weight > max_size:
        raise TableFull(f"a group of {max_size} cannot hold members of weight {weight}")
    of.need_room(weight)
    return value
