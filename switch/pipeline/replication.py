# SPDX-License-Identifier: Apache-2.0
"""The packet replication engine: multicast groups and clone sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from railweave.switch.pipeline.base import Base
from railweave.switch.pipeline.values import CloneSession, Replica
from railweave.switch.program import Program

MAX_REPLICAS = 1 << 12  # of one group: the engine lets a packet pass egress that often


class Replication(Base):
    """Copies of packets. As in BMv2 there is no pruning: a group may send back where a packet came from."""

    def __init__(self, program: Program, plan: bytes) -> None:
        """There are no groups and no sessions."""
        super().__init__(program, plan)
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._sessions: dict[int, CloneSession] = {}

    def multicast(self, group: int, replicas: Sequence[Replica] | None) -> None:
        """Create, replace or (None) delete a multicast group."""
        if not 1 <= group < 1 << 16:
            raise ValueError(f"multicast groups are 1…65535, not {group}")
        with self._lock:
            self.native.set_multicast(group, _in_order(replicas or ()))
            if replicas is None:
                self._groups.pop(group, None)
            else:
                self._groups[group] = tuple(replicas)

    def clone_session(
        self,
        session: int,
        replicas: Sequence[Replica] | None,
        class_of_service: int = 0,
        packet_length: int = 0,
    ) -> None:
        """Create, replace or (None) delete a clone session; clones are cut to `packet_length` bytes."""
        if not 0 <= session < 1 << 15:
            raise ValueError(f"clone sessions are 0…32767, not {session}")
        if not 0 <= packet_length < 1 << 16:
            raise ValueError(f"the length of a cloned packet is 0…65535 bytes, not {packet_length}")
        with self._lock:
            self.native.set_clone_session(session, _in_order(replicas or ()), packet_length)
            if replicas is None:
                self._sessions.pop(session, None)
            else:
                self._sessions[session] = CloneSession(tuple(replicas), class_of_service, packet_length)

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """All multicast groups."""
        with self._lock:
            return dict(self._groups)

    def clone_sessions(self) -> dict[int, CloneSession]:
        """All clone sessions."""
        with self._lock:
            return dict(self._sessions)


def _in_order(replicas: Iterable[Replica]) -> list[tuple[int, int]]:
    """Replicas in the order in which BMv2 sends them.

    Its P4Runtime server makes one node of all ports of an instance, newest node first; a node sends to its
    ports in ascending order.
    """
    nodes: dict[int, set[int]] = {}
    count = 0
    for replica in replicas:
        if not 0 <= replica.port < 1 << 16 or not 0 <= replica.instance < 1 << 16:
            raise ValueError(f"port and instance have 16 bits: {replica}")
        nodes.setdefault(replica.instance, set()).add(replica.port)
        count += 1
    if count > MAX_REPLICAS:
        raise ValueError(f"a group has at most {MAX_REPLICAS} replicas, not {count}")
    return [(port, instance) for instance in reversed(nodes) for port in sorted(nodes[instance])]
