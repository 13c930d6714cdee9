# SPDX-License-Identifier: Apache-2.0
"""Copies of packets. As in BMv2 there is no pruning: a group may send back where a packet came from."""

from __future__ import annotations

from collections.abc import Sequence

from railweave._native.engine import Engine
from railweave.switch.pipeline.values import Replica

MAX_PACKET_BYTES = (1 << 16) - 1
MAX_REPLICAS = 1 << 12  # of one group: the engine lets a packet pass egress that often


class Replication:
    """Multicast groups and clone sessions of an engine."""

    def __init__(self, engine: Engine) -> None:
        """Begin without groups and sessions, as the engine does."""
        self._engine = engine

    def set_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a multicast group; without replicas, delete it."""
        if not 1 <= group < 1 << 16:
            raise ValueError(f"multicast groups are 1…65535, not {group}")
        self._engine.set_multicast(group, _in_order(replicas))

    def set_session(self, session: int, replicas: Sequence[Replica], packet_length: int = 0) -> None:
        """Create or replace a clone session; clones are cut to `packet_length` bytes unless that is 0.

        Without replicas, delete it.
        """
        if not 0 <= session < 1 << 15:
            raise ValueError(f"clone sessions are 0…32767, not {session}")
        if packet_length < 0:
            raise ValueError(
                f"a clone is cut to 1 byte or more, or not at all (0), but not to {packet_length}"
            )
        length = min(packet_length, MAX_PACKET_BYTES)
        self._engine.set_clone_session(session, _in_order(replicas), length)


def _in_order(replicas: Sequence[Replica]) -> list[tuple[int, int]]:
    """Return replicas in the order in which BMv2 sends them.

    Its P4Runtime server makes one node of all ports of an instance, newest node first; a node sends to its
    ports in ascending order.
    """
    if len(replicas) > MAX_REPLICAS:
        raise ValueError(f"a group has at most {MAX_REPLICAS} replicas, not {len(replicas)}")
    nodes: dict[int, set[int]] = {}
    for replica in replicas:
        if not 0 <= replica.port < 1 << 16 or not 0 <= replica.instance < 1 << 16:
            raise ValueError(f"port and instance have 16 bits: {replica}")
        nodes.setdefault(replica.instance, set()).add(replica.port)
    return [(port, instance) for instance in reversed(nodes) for port in sorted(nodes[instance])]
