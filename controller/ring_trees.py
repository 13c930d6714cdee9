# SPDX-License-Identifier: Apache-2.0
"""Compute the sums of each switch in a ring's tree, and the copies of sums that it sends. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from railweave.controller.errors import Refused
from railweave.controller.tables import Connection
from railweave.controller.tree import Tree


@dataclass(frozen=True)
class Copy:
    """A copy of a sum, on the connection `of`. Its RETH, immediate data and acknowledge request come from
    contributor `kept`'s packet. The number after the last contributor is the switch above.
    """

    of: Connection
    kept: int


@dataclass(frozen=True)
class Part:
    """A switch's part of a ring."""

    answers: tuple[Copy, ...]  # by contributor (a member or a lower switch): sent if it repeats its packet
    down: tuple[Copy, ...]  # copies of the sum of all
    up: Copy | None = None  # copy of the switch's own sum for the switch above; None: the switch is the root

    @property
    def contributors(self) -> tuple[Connection, ...]:
        """The connections of the contributors."""
        return tuple(copy.of for copy in self.answers)

    @property
    def ways(self) -> tuple[Connection, ...]:
        """All connections of incoming packets: of the contributors, and of the switch above."""
        return (*self.contributors, self.up.of) if self.up else self.contributors

    @property
    def copies(self) -> tuple[Copy, ...]:
        """All copies without repetition. A contributor's answer comes first, at its number."""
        return tuple(dict.fromkeys((*self.answers, *self.down, *([self.up] if self.up else ()))))


def alone(connections: Sequence[Connection]) -> Part:
    """Return the part of a single switch that sums the whole ring."""
    copies = tuple(Copy(connection, member) for member, connection in enumerate(connections))
    return Part(copies, copies)


def parts(
    tree: Tree,
    connections: Sequence[Connection],
    link: Callable[[str, int], Connection],
    way: Callable[[str, int], int],
) -> dict[str, Part]:
    """Cut a ring, given as the connection of each rank to the next, into the parts of a tree's switches.

    `link` returns the connection of a switch to the one above, by name and by the port at one of its ends.
    `way` returns the port of a switch towards a rank. Where the ring leaves a switch's ranks, the switch of
    the next rank makes the copy, with headers from the packet of the switch above. So each trunk carries
    the data once up and once down. Refused if the ring leaves a switch's ranks more than once.
    """
    size = len(connections)
    below: dict[str, set[int]] = {}
    for node in reversed(tree.nodes):
        groups = [_ranks(one.rank, one.switch, below) for one in node.contributors]
        below[node.switch] = set[int]().union(*groups)

    def leaving(ranks: set[int]) -> list[int]:
        return [rank for rank in sorted(ranks) if (rank + 1) % size not in ranks]

    found: dict[str, Part] = {}
    for node in tree.nodes:
        if len(out := leaving(below[node.switch])) > 1:
            raise Refused(
                f"the ring leaves the ranks at switch {node.switch} {len(out)} times",
                "once",
                "give ranks at the same switch successive numbers",
            )
        above = len(node.contributors)
        place = {
            rank: index
            for index, one in enumerate(node.contributors)
            for rank in _ranks(one.rank, one.switch, below)
        }
        answers, down = [], []
        for index, one in enumerate(node.contributors):
            if one.rank is None:
                ranks = below[one.switch or ""]
                before = [rank for rank in range(size) if rank not in ranks and (rank + 1) % size in ranks]
                kept = place.get(before[0], above) if before else index
                answers.append(Copy(link(one.switch or "", one.port), kept))
                down.append(answers[-1])
            else:
                to, source = (one.rank + 1) % size, (one.rank - 1) % size
                answers.append(
                    Copy(replace(connections[one.rank], receiver_port=way(node.switch, to)), index)
                )
                incoming = replace(connections[source], receiver_port=one.port)
                down.append(Copy(incoming, place.get(source, above)))
        up = Copy(link(node.switch, node.parent.port), place[out[0]] if out else 0) if node.parent else None
        found[node.switch] = Part(tuple(answers), tuple(down), up)
    return found


def _ranks(rank: int | None, switch: str | None, below: dict[str, set[int]]) -> set[int]:
    return below[switch or ""] if rank is None else {rank}
