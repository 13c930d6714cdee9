# SPDX-License-Identifier: Apache-2.0
"""An action profile: members, groups and one-shot sets, and the tables' entries that refer to them.

The hash of the selector's fields modulo the group's size chooses a packet's member. Members are in the order
of BMv2's member handles. Each copy of a member takes the lowest free handle, as in BMv2's P4Runtime server. A
member has as many copies as its weight.
"""

from __future__ import annotations

import copy
import heapq
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple, Self

from railweave._native.engine import GROUP, Engine
from railweave.switch.errors import DuplicateEntry, InUse, TableFull, UnknownEntry
from railweave.switch.pipeline.values import (
    Group,
    GroupMember,
    Params,
    Target,
    WeightedAction,
    arguments,
    words,
)
from railweave.switch.program import ProfileInfo, TableInfo

MAX_WEIGHT = 1 << 16  # of a group
MAX_CHOICES = 1 << 18  # of all groups of a profile together

Place = tuple[int, int]  # an entry: index of the table, and handle
_Choice = tuple[int, Target, int | None]  # BMv2's handle of a copy of a member, its action, its watched port


class Call(NamedTuple):
    """An action in the engine's format; `one_shot` is the set that it represents, if any."""

    number: int
    parameters: list[int]
    one_shot: _Set | None = None


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
    action: Target
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
    """A one-shot set: a group with its own members."""

    number: int  # the engine's
    choices: tuple[_Choice, ...]


class Profile:
    """An action profile, empty at first. It has either members and groups, or one-shot sets."""

    def __init__(
        self, info: ProfileInfo, tables: Iterable[TableInfo], engine: Engine, lock: threading.RLock
    ) -> None:
        """Begin empty; `tables` are those whose entries refer to the profile."""
        self.info = info
        self._what = f"action profile {info.name!r}"
        self._tables = {table.index: table for table in tables}
        self._engine = engine
        self._lock = lock
        self._members: dict[int, _Member] = {}
        self._groups: dict[int, _Group] = {}
        self._sets: dict[Place, _Set] = {}
        self._handles = _Numbers()
        self._numbers = _Numbers()
        self._choices = 0  # of all groups and sets
        self._down: set[int] = set()

    # Members.

    def insert_member(self, member_id: int, action: str, params: Params = ()) -> None:
        """Add a member."""
        with self._lock:
            self._require_no_sets()
            if member_id in self._members:
                raise DuplicateEntry(f"{self._what} has a member {member_id} already")
            if self.info.size and len(self._members) >= self.info.size:
                raise TableFull(f"{self._what} is full: it holds {self.info.size} members")
            value = self._action(action, params)
            self._members[member_id] = _Member(value, [self._handles.take()])

    def modify_member(self, member_id: int, action: str, params: Params = ()) -> None:
        """Give a member another action; entries and groups follow."""
        with self._lock:
            member = self._member(member_id)
            member.action = self._action(action, params)
            for table, handle in member.users:
                self._engine.modify(table, handle, *_encode(self._tables[table], member.action))
            for group in self._groups.values():
                if any(one.member_id == member_id for one in group.value.members):
                    self._publish(group.number, self._choices_of(group.value))

    def delete_member(self, member_id: int) -> None:
        """Remove a member that no entry and no group refers to."""
        with self._lock:
            member = self._member(member_id)
            if member.users or member.weights.total():
                raise InUse(f"member {member_id} of {self._what} is in use")
            for handle in member.handles:
                self._handles.give(handle)
            del self._members[member_id]

    def members(self) -> dict[int, Target]:
        """Return the actions of all members, by id."""
        with self._lock:
            return {number: member.action for number, member in self._members.items()}

    # Groups.

    def insert_group(
        self, group_id: int, members: Sequence[GroupMember | tuple[int, ...]], max_size: int = 0
    ) -> None:
        """Add a group: (member id, weight, watch port or None) of each; it may be empty."""
        with self._lock:
            self._require_selector()
            self._require_no_sets()
            if group_id in self._groups:
                raise DuplicateEntry(f"{self._what} has a group {group_id} already")
            value = self._group_value(members, max_size)
            if len(self._groups) + len(self._sets) >= MAX_WEIGHT:
                raise TableFull(f"{self._what} holds at most {MAX_WEIGHT} groups")
            self._groups[group_id] = _Group(self._numbers.take(), Group((), max_size))
            self._regroup(self._groups[group_id], value)

    def modify_group(
        self, group_id: int, members: Sequence[GroupMember | tuple[int, ...]], max_size: int = 0
    ) -> None:
        """Give a group other members; its `max_size` stays as it is."""
        with self._lock:
            group = self._group(group_id)
            known = group.value.max_size
            if max_size != known:
                raise ValueError(f"the max_size of group {group_id} is {known} and cannot be changed")
            self._regroup(group, self._group_value(members, max_size))

    def delete_group(self, group_id: int) -> None:
        """Remove a group that no entry refers to."""
        with self._lock:
            group = self._group(group_id)
            if group.users:
                raise InUse(f"group {group_id} of {self._what} is in use")
            self._regroup(group, Group(()))
            self._numbers.give(group.number)
            del self._groups[group_id]

    def groups(self) -> dict[int, Group]:
        """Return all groups by id."""
        with self._lock:
            return {number: group.value for number, group in self._groups.items()}

    def snapshot(self) -> Self:
        """Return members and groups as they are now, to be read only."""
        view = copy.copy(self)
        view._members = {number: replace(member) for number, member in self._members.items()}
        view._groups = {number: replace(group) for number, group in self._groups.items()}
        return view

    def set_port_up(self, port: int, up: bool) -> None:
        """Let members that watch a port take part in their groups while it is up."""
        with self._lock:
            if up == (port not in self._down):
                return
            (self._down.discard if up else self._down.add)(port)
            for group in self._groups.values():
                if any(member.watch_port == port for member in group.value.members):
                    self._publish(group.number, self._choices_of(group.value))
            for one in self._sets.values():
                if any(watch == port for _, _, watch in one.choices):
                    self._publish(one.number, one.choices)

    def _regroup(self, group: _Group, value: Group) -> None:
        """Change members. It takes new handles before it frees old ones, in the order of member ids."""
        for one in group.value.members:
            self._members[one.member_id].weights[one.weight] -= 1
        for one in sorted(value.members):
            member = self._members[one.member_id]
            while len(member.handles) < one.weight:
                member.handles.append(self._handles.take())
            member.weights[one.weight] += 1
        for number in sorted({one.member_id for one in (*group.value.members, *value.members)}):
            member = self._members[number]
            member.weights = +member.weights
            while len(member.handles) > max(member.weights, default=1):
                self._handles.give(member.handles.pop())
        self._choices += _weight(value.members) - _weight(group.value.members)
        group.value = value
        self._publish(group.number, self._choices_of(value))

    def _choices_of(self, group: Group) -> Iterable[_Choice]:
        for one in group.members:
            member = self._members[one.member_id]
            for handle in member.handles[: one.weight]:
                yield handle, member.action, one.watch_port

    def _publish(self, number: int, choices: Iterable[_Choice]) -> None:
        """Tell the engine the choices of a group, in BMv2's order."""
        up = [action for _, action, watch in sorted(choices, key=itemgetter(0)) if watch not in self._down]
        for table in self._tables.values():
            self._engine.set_group(table.index, number, [_encode(table, action) for action in up])

    # References of entries.

    def checked(self, target: Target) -> Target:
        """Return the target of an entry with parameters as numbers; ValueError if no entry can have it."""
        if target.action is not None:
            raise ValueError(f"entries refer to {self._what}, not to actions")
        if target.member is None:
            self._require_selector()
        if target.action_set is None:
            return target
        actions = tuple(
            replace(one, params=self._action(one.action, one.params).params) for one in target.action_set
        )
        if any(one.weight < 1 for one in actions):
            raise ValueError("the weight of an action is at least 1")
        if self._members or self._groups:
            raise ValueError(
                f"the tables of {self.info.name!r} are programmed by members and groups: no action sets"
            )
        return replace(target, action_set=actions)

    def call(self, table: TableInfo, target: Target) -> Call:
        """Return a checked target in the engine's format."""
        if target.member is not None:
            return Call(*_encode(table, self._member(target.member).action))
        if target.group is not None:
            return Call(GROUP, [self._group(target.group).number])
        one = self._one_shot(target.action_set or ())
        return Call(GROUP, [one.number], one)

    def use(self, place: Place, target: Target, call: Call) -> None:
        """Note that an entry refers to a target, of which `call` was made."""
        if target.member is not None:
            self._members[target.member].users.add(place)
        elif target.group is not None:
            self._groups[target.group].users.add(place)
        elif call.one_shot is not None:
            self._sets[place] = call.one_shot

    def release(self, place: Place, target: Target) -> None:
        """Forget that an entry refers to a target."""
        if target.member is not None:
            self._members[target.member].users.discard(place)
        elif target.group is not None:
            self._groups[target.group].users.discard(place)
        elif place in self._sets:
            one = self._sets.pop(place)
            self._publish(one.number, ())
            self._choices -= len(one.choices)
            self._numbers.give(one.number)
            for handle, _, _ in one.choices:
                self._handles.give(handle)

    def _one_shot(self, actions: Sequence[WeightedAction]) -> _Set:
        weight = _weight(actions)
        self._require_room(weight)
        choices = tuple(
            (self._handles.take(), Target(one.action, one.params), one.watch_port)
            for one in actions
            for _ in range(one.weight)
        )
        self._choices += weight
        one = _Set(self._numbers.take(), choices)
        self._publish(one.number, one.choices)
        return one

    # Checks.

    def _member(self, number: int) -> _Member:
        if number not in self._members:
            raise UnknownEntry(f"{self._what} has no member {number}")
        return self._members[number]

    def _group(self, number: int) -> _Group:
        if number not in self._groups:
            raise UnknownEntry(f"{self._what} has no group {number}")
        return self._groups[number]

    def _action(self, action: str, params: Params) -> Target:
        """Return the action of a member; ValueError unless all tables of the profile have it."""
        if not self._tables:
            raise ValueError(f"no table uses {self._what}")
        for table in self._tables.values():
            _, description = table.action(action)
        return Target(action, arguments(description, params))

    def _group_value(self, members: Sequence[GroupMember | tuple[int, ...]], max_size: int) -> Group:
        value = Group(tuple(GroupMember(*member) for member in members), max_size)
        if max_size < 0 or any(member.weight < 1 for member in value.members):
            raise ValueError("max_size is not negative, and the weight of a member is at least 1")
        if len({member.member_id for member in value.members}) != len(value.members):
            raise ValueError("a member is named twice in a group: give it a weight")
        for member in value.members:
            self._member(member.member_id)
        self._require_room(_weight(value.members))
        return value

    def _require_room(self, weight: int) -> None:
        if weight > MAX_WEIGHT or self._choices + weight > MAX_CHOICES:
            raise TableFull(
                f"{self._what}: weights of a group sum to at most {MAX_WEIGHT}, "
                f"of all groups to {MAX_CHOICES}"
            )

    def _require_selector(self) -> None:
        if not self.info.selector:
            raise ValueError(f"{self._what} has no selector, so entries name members only")

    def _require_no_sets(self) -> None:
        if self._sets:
            raise ValueError(
                f"the tables of {self.info.name!r} are programmed by action sets: no members, no groups"
            )


def _encode(table: TableInfo, action: Target) -> tuple[int, list[int]]:
    number, description = table.action(action.action or "")
    return number, words(description, action.params)


def _weight(parts: Iterable[GroupMember | WeightedAction]) -> int:
    return sum(part.weight for part in parts)
