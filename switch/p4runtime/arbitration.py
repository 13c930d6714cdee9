# SPDX-License-Identifier: Apache-2.0
"""Who may write: election of a primary among the controllers of each role (specification, section 5).

No I/O: streams are opaque keys, and every call returns the messages to send.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from finsy.proto import U128, p4r, rpc_status
from railweave.switch.p4runtime.errors import Code, Refused, invalid, not_found, require, unimplemented

Stream = Hashable
Notice = tuple[Stream, p4r.StreamMessageResponse]


@dataclass
class _Role:
    """Controllers that share a role: the election id of each, and the greatest of any primary so far."""

    clients: dict[Stream, int] = field(default_factory=dict)
    highest: int | None = None
    primary: Stream | None = None


class Arbitration:
    """Elections of one device. Election id 0 (or none) is a backup that never becomes primary."""

    def __init__(self, device_id: int) -> None:
        """No controller is connected, and none has been primary."""
        self._device_id = device_id
        self._roles: dict[str, _Role] = {}
        self._role_of: dict[Stream, str] = {}

    def update(self, stream: Stream, message: p4r.MasterArbitrationUpdate) -> list[Notice]:
        """Take a MasterArbitrationUpdate; Refused means that the stream must be closed."""
        require(
            message.device_id == self._device_id,
            not_found if stream not in self._role_of else _failed_precondition,
            f"this is device {self._device_id}, not {message.device_id}",
        )
        name = message.role.name
        if message.role.HasField("config"):
            raise unimplemented("role configurations are not supported; a role without one may do everything")
        known = self._role_of.get(stream)
        require(
            known in (None, name), _failed_precondition, f"the stream has role {known!r}; open another one"
        )
        election_id = U128.decode(message.election_id)
        role = self._roles.setdefault(name, _Role())
        others = (held for other, held in role.clients.items() if other != stream)
        if election_id != 0 and election_id in others:
            raise invalid("Election ID is already used by another connection with the same role")
        self._role_of[stream] = name
        role.clients[stream] = election_id
        return self._elect(name, role, stream, election_id)

    def leave(self, stream: Stream) -> list[Notice]:
        """Forget a stream that ended. Backups of a primary are told: one of them may come forward."""
        name = self._role_of.pop(stream, None)
        if name is None:
            return []
        role = self._roles[name]
        del role.clients[stream]
        if role.primary != stream:
            return []
        role.primary = None
        return [self._notice(name, role, client) for client in role.clients]

    def check_primary(self, role_name: str, election_id: p4r.Uint128) -> None:
        """Refuse unless the request comes from the primary of its role."""
        role = self._roles.get(role_name)
        if role is None or role.primary is None:
            raise Refused(Code.PERMISSION_DENIED, f"role {role_name!r} has no primary; open a stream first")
        if U128.decode(election_id) != role.clients[role.primary]:
            raise Refused(Code.PERMISSION_DENIED, "only the primary may write; election id does not match")

    def is_primary(self, stream: Stream) -> bool:
        """Whether the stream may send packets and acknowledge digests."""
        name = self._role_of.get(stream)
        return name is not None and self._roles[name].primary == stream

    def primaries(self) -> list[Stream]:
        """Streams that packets and digests go to."""
        return [role.primary for role in self._roles.values() if role.primary is not None]

    def _elect(self, name: str, role: _Role, stream: Stream, election_id: int) -> list[Notice]:
        was_primary = role.primary == stream
        if election_id != 0 and (role.highest is None or election_id >= role.highest):
            unchanged = was_primary and election_id == role.highest
            role.highest = election_id
            role.primary = stream
            # The new primary hears last, when the others know that they are not.
            to_tell = [stream] if unchanged else [c for c in role.clients if c != stream] + [stream]
        else:
            if was_primary:
                role.primary = None
            to_tell = list(role.clients) if was_primary else [stream]
        return [self._notice(name, role, client) for client in to_tell]

    def _notice(self, name: str, role: _Role, client: Stream) -> Notice:
        if role.primary is None:
            status = rpc_status.Status(code=Code.NOT_FOUND, message="there is no primary")
        elif role.primary == client:
            status = rpc_status.Status(code=Code.OK, message="you are primary")
        else:
            status = rpc_status.Status(code=Code.ALREADY_EXISTS, message="you are backup")
        update = p4r.MasterArbitrationUpdate(device_id=self._device_id, status=status)
        if name:
            update.role.name = name
        if role.highest is not None:
            update.election_id.CopyFrom(U128.encode(role.highest))
        return client, p4r.StreamMessageResponse(arbitration=update)


def _failed_precondition(message: str) -> Refused:
    return Refused(Code.FAILED_PRECONDITION, message)
