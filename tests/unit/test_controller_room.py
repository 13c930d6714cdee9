# SPDX-License-Identifier: Apache-2.0
"""The limits of a switch: a request may reach every limit, and an error names a limit that it exceeds."""

from __future__ import annotations

import pytest

from railweave.controller import desired
from railweave.controller.addresses import endpoint
from railweave.controller.desired import Aggregation, require_room
from railweave.controller.errors import Refused
from railweave.controller.slots import SlotRange
from railweave.controller.tree import Contributor, Node, Parent, Tree

PORTS, SLOTS = 40, 8192
NOTES = SLOTS // 16  # entries in `members`: one note per smallest slot range


def root(children: int) -> Node:
    return Node("s", tuple(Contributor(child, child + 1, rank=child) for child in range(children)), None)


def leaf(children: int) -> Node:
    return Node("s", root(children).contributors, Parent("spine", 40, 0))


def refusal(nodes: list[Node]) -> str:
    with pytest.raises(Refused) as refused:
        require_room("s", nodes, PORTS, SLOTS)
    return str(refused.value)


@pytest.mark.parametrize(
    ("nodes", "limit"),
    [
        ([root(1)] * 511, "serve 512 groups: expected at most 511; "),  # one more for its own address
        (
            [root(31)] * 115 + [root(4096 - NOTES - 115 * 31)],
            "need 3585 entries in members: expected at most 3584; ",
        ),
        (  # below the root every child is in two multicast groups
            [leaf(31)] * 64 + [root(4096 - PORTS - 64 * 63)],
            "need 4097 copies in multicast groups: expected at most 4096; ",
        ),
    ],
)
def test_a_limit_may_be_reached_and_is_named_if_exceeded(nodes: list[Node], limit: str) -> None:
    require_room("s", nodes, PORTS, SLOTS)
    assert refusal([root(1), *nodes]).startswith(f"switch s would {limit}")


@pytest.mark.parametrize("node", [root(5), leaf(5)], ids=["root", "leaf"])
def test_the_copies_counted_are_those_that_are_written(node: Node) -> None:
    addresses = {"s": endpoint(1), "spine": endpoint(2)}
    group = Aggregation(1, "ina", Tree((node,)), 3, {rank: endpoint(10 + rank) for rank in range(5)})
    state = desired.aggregation(group, "s", SlotRange(0, 16, 1), addresses)
    left = 4096 - PORTS - sum(len(multicast.replicas) for multicast in state.multicasts)
    nodes = [node, *[leaf(31)] * (left // 63), *[root(1)] * (left % 63)]
    require_room("s", nodes, PORTS, SLOTS)
    assert "would need 4097 copies" in refusal([root(1), *nodes])
