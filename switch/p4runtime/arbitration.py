# SPDX-License-Identifier: Apache-2.0
"""Election of a primary, which may write, among the controllers of each role (specification, section 5).

No I/O: streams are opaque keys, and every call returns the messages to send.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import U128, p4r, rpc_status
from google.protobuf.any_pb2 import Any as PackedAny

from railweave.switch.p4runtime.errors import (
    Code,
    Refused,
    denied,
    exhausted,
    failed_precondition,
    not_found,
    require,
    unimplemented,
)
from railweave.switch.p4runtime.roles import Scope, require_apart

MAX_STREAMS = 64  # of one role
MAX_ROLES = 64  # a role is remembered with its election id after its controllers have left, but not for ever
ROLE_LIFETIME_S = 3600.0
MAX_ROLE_NAME = 256

Stream = Any  # anything hashable
Notice = tuple[Stream, p4r.StreamMessageResponse]


@dataclass
class _Role:
    """Controllers of a role with their election ids, and the greatest id of any primary so far."""

    clients: dict[Stream, int | None] = field(default_factory=dict)
    highest: int | None = None
    primary: Stream | None = None  # the elected one
    accepted: Stream | None = None  # the same, as soon as the Write of the primary before has ended
    config: PackedAny | None = None  # as the last primary gave it
    scope: Scope = field(default_factory=Scope)
    left_s: float = 0.0  # when the last controller left


class ElectionIdInUse(Refused):
    """Another stream of the role has the election id, and has not ended."""


class Arbitration:
    """Elections of one device. A controller without an election id is a backup that never becomes primary."""

    def __init__(self, device_id: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Begin with no controller. No controller has been primary."""
        self._device_id = device_id
        self._clock_s = clock_s
        self._roles: dict[str, _Role] = {"": _Role()}
        self._role_of: dict[Stream, str] = {}

    def update(self, stream: Stream, message: p4r.MasterArbitrationUpdate) -> list[Notice]:
        """Take a MasterArbitrationUpdate, and return the messages to others. Refused ends the stream.

        The sender's own message comes from `accept`, which is called when no Write is in progress.
        """
        require(
            message.device_id == self._device_id,
            f"this is device {self._device_id}, not {message.device_id}",
            not_found if stream not in self._role_of else failed_precondition,
        )
        name = message.role.name
        if message.role.id and not name:
            raise unimplemented("role.id is given: roles have names since P4Runtime 1.3", "give role.name")
        require(len(name) <= MAX_ROLE_NAME, f"a role's name has up to {MAX_ROLE_NAME} characters")
        self._forget_old_roles(name)
        known = self._role_of.get(stream)
        require(
            known in (None, name), f"the stream has role {known!r}; open another one", failed_precondition
        )
        scope = Scope.of(message.role.config) if message.role.HasField("config") else Scope()
        require_apart(name, scope, {other: role.scope for other, role in self._roles.items()})
        role = self._roles.get(name) or _Role()
        election_id = U128.decode(message.election_id) if message.HasField("election_id") else None
        others = (held for other, held in role.clients.items() if other != stream)
        if election_id is not None and election_id in others:
            raise ElectionIdInUse(
                Code.INVALID_ARGUMENT,
                f"election id {election_id} belongs to another open stream of role {name!r}",
                "use another election id, or end the other stream",
            )
        if stream not in role.clients and len(role.clients) >= MAX_STREAMS:
            raise exhausted(f"role {name!r} has {MAX_STREAMS} streams, which is the limit")
        if name not in self._roles and len(self._roles) >= MAX_ROLES:
            raise exhausted(f"there are {MAX_ROLES} roles, which is the limit")
        self._roles[name] = role
        self._role_of[stream] = name
        role.clients[stream] = election_id
        config = message.role.config if message.role.HasField("config") else None
        return self._elect(name, stream, election_id, scope, config)

    def leave(self, stream: Stream) -> list[Notice]:
        """Forget a stream that ended. Return messages to the backups of a primary: one may become primary."""
        name = self._role_of.pop(stream, None)
        if name is None:
            return []
        role = self._roles[name]
        del role.clients[stream]
        role.left_s = self._clock_s()
        if role.primary != stream:
            return []
        role.primary = role.accepted = None
        return [self._notice(name, role, client) for client in role.clients]

    def check_primary(self, role_name: str, election_id: p4r.Uint128 | None) -> Scope:
        """Return the rights of the primary of a role. Refused if another client sends the request."""
        role = self._role(role_name)
        if role.accepted is None:
            next_step = "open a stream and send an arbitration update"
            if role.highest is not None:
                next_step = f"send an arbitration update with election id {role.highest} or greater"
            raise denied(f"role {role_name!r} has no primary", next_step)
        primary = role.clients[role.accepted]
        given = None if election_id is None else U128.decode(election_id)
        if given != primary:
            raise denied(
                f"election id {given} is not the id of the primary, {primary}",
                "send an arbitration update with a greater election id to become primary",
            )
        return role.scope

    def scope(self, role_name: str) -> Scope:
        """Return the rights of a role, which filter its Reads. Refused if no controller has had the role."""
        return self._role(role_name).scope

    def _role(self, name: str) -> _Role:
        role = self._roles.get(name)
        if role is None:
            raise not_found(f"there is no role {name!r}: no controller has had it")
        return role

    def is_primary(self, stream: Stream) -> bool:
        """Return whether the stream may send packets and acknowledge digests."""
        name = self._role_of.get(stream)
        return name is not None and self._roles[name].accepted == stream

    def primaries(self) -> list[tuple[Stream, Scope]]:
        """Return the streams that get packets, digests and time-outs, with the rights of each."""
        return [(role.accepted, role.scope) for role in self._roles.values() if role.accepted is not None]

    def must_wait(self, stream: Stream) -> bool:
        """Return whether the stream becomes primary when no Write is in progress any more."""
        role = self._roles[self._role_of[stream]]
        return bool(role.primary == stream != role.accepted)

    def accept(self, stream: Stream) -> Notice:
        """Let a stream that has been elected be primary, and return its message."""
        name = self._role_of[stream]
        role = self._roles[name]
        if role.primary == stream:
            role.accepted = stream
        return self._notice(name, role, stream)

    def _forget_old_roles(self, coming: str) -> None:
        """Forget roles whose controllers left long ago, and the oldest of these if a new role needs room."""
        left = {name: role.left_s for name, role in self._roles.items() if name and not role.clients}
        left.pop(coming, None)
        least = MAX_ROLES if coming in self._roles else MAX_ROLES - 1
        for name in sorted(left, key=left.__getitem__):
            if self._clock_s() < left[name] + ROLE_LIFETIME_S and len(self._roles) <= least:
                break
            del self._roles[name]

    def _elect(
        self, name: str, stream: Stream, election_id: int | None, scope: Scope, config: PackedAny | None
    ) -> list[Notice]:
        role = self._roles[name]
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            if role.accepted != stream:
                role.accepted = None
            role.highest, role.primary = election_id, stream
            role.scope = scope
            role.config = copy.deepcopy(config)
        elif role.primary == stream:
            role.primary = role.accepted = None
        else:
            return []
        return [self._notice(name, role, client) for client in role.clients if client != stream]

    def _notice(self, name: str, role: _Role, client: Stream) -> Notice:
        code, message = Code.ALREADY_EXISTS, "you are backup"
        if role.primary is None:
            code, message = Code.NOT_FOUND, "there is no primary"
        elif role.primary == client:
            code, message = Code.OK, "you are primary"
        status = rpc_status.Status(code=code, message=message)
        update = p4r.MasterArbitrationUpdate(device_id=self._device_id, status=status)
        if name or role.config is not None:
            update.role.name = name
        if role.config is not None:
            update.role.config.CopyFrom(role.config)
        if role.highest is not None:
            update.election_id.CopyFrom(U128.encode(role.highest))
        return client, p4r.StreamMessageResponse(arbitration=update)
