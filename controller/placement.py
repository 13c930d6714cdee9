# SPDX-License-Identifier: Apache-2.0
"""Where the trees of a job's rails come to lie, as far as quotas and switches allow."""

from __future__ import annotations

import logging
from ipaddress import IPv4Address

from railweave.controller import requests
from railweave.controller.desired import Aggregation
from railweave.controller.errors import Refused
from railweave.controller.fabric import Fabric, Host
from railweave.controller.jobs import Group, RailTree
from railweave.controller.quotas import Quotas, slots_per_tree
from railweave.controller.resuming import Claim
from railweave.controller.tables import INA_UDP_PORT, Endpoint, ip_number, mac_number
from railweave.v1 import controller_pb2 as pb

LOG = logging.getLogger(__name__)


class Placement:
    """Finds places on a fabric, within quotas."""

    def __init__(self, fabric: Fabric, quotas: Quotas) -> None:
        """Place trees on the switches of `fabric`."""
        self._fabric = fabric
        self._quotas = quotas

    async def place(self, group: Group, rail: pb.RailOffer) -> None:
        """Give a rail its trees, as many as there is room for; Refused if there is none for any."""
        quota = self._quotas.share(group.job)
        hosts = self.hosts(group, rail.name)
        trees = self._fabric.plan(rail.plane, hosts, quota.trees, last_resort=True)
        slots = slots_per_tree(quota.slots, len(trees))
        for index, tree in enumerate(trees):
            try:
                placed = await self._fabric.admit(rail.plane, hosts, tree, slots)
            except Refused as refused:
                if not index:
                    raise
                LOG.info("job %s: rail %s gets %d trees: %s", group.job, rail.name, index, refused)
                return
            group.trees.append(RailTree(rail.name, rail.plane, index, slots))
            group.trees[-1].put(placed)

    async def again(self, group: Group, tree: RailTree) -> Aggregation:
        """A new place for a tree, which starts anew there; Refused if there is none now."""
        hosts = self.hosts(group, tree.rail)
        (best,) = self._fabric.plan(tree.plane, hosts)
        return await self._fabric.admit(tree.plane, hosts, best, tree.slots)

    def possible(self, group: Group, tree: RailTree) -> bool:
        """Whether the network as it is now has a tree for these ranks at all."""
        try:
            return bool(self._fabric.plan(tree.plane, self.hosts(group, tree.rail)))
        except Refused:
            return False

    def adopt(self, group: Group, claims: dict[int, Claim]) -> tuple[RailTree, str]:
        """A tree of an earlier controller's, from what every rank reports of it, and why it must be moved.

        The second is empty if it runs on: all ranks agree, none has paused, and the switches hold its group.
        """
        first = next(iter(claims.values()))
        rail = next(rail for rail in group.requests[0].rails if rail.name == first.rail)
        tree = RailTree(first.rail, rail.plane, first.tree, first.slots)
        tree.numbers = {rank: claim.group for rank, claim in claims.items()}
        for claim in claims.values():
            self._fabric.known_to_ranks(claim.group)
        if any((claim.group, claim.paused) != (first.group, False) for claim in claims.values()):
            return tree, "the controller was restarted while the group was being moved"
        try:
            hosts = self.hosts(group, first.rail)
            tree.placed = self._fabric.adopt(first.group, rail.plane, first.virtual_ip, hosts)
        except Refused as refused:
            return tree, str(refused)
        return tree, ""

    def hosts(self, group: Group, rail: str) -> dict[int, Host]:
        """Where the ranks are on a rail's plane."""
        hosts = {}
        for rank, request in group.requests.items():
            offer = next(other for other in request.rails if other.name == rail)
            endpoint = Endpoint(mac_number(offer.mac), ip_number(offer.address), offer.port)
            plane = self._fabric.topology.plane(offer.plane)
            hosts[rank] = Host(requests.nic(offer, plane), endpoint)
        return hosts

    def message(self, tree: RailTree, rank: int) -> pb.InaGroup:
        """A rank's place in a tree that has one."""
        placed = tree.placed
        assert placed is not None  # noqa: S101 - callers have just put it there
        _, contributor = placed.tree.place(rank)
        return pb.InaGroup(
            rail=tree.rail,
            group=placed.group,
            virtual_address=str(IPv4Address(placed.virtual_ip)),
            udp_port=INA_UDP_PORT,
            child=contributor.child,
            slots=tree.slots,
            lanes=self._fabric.lanes,
            depth=placed.tree.depth(rank),
            tree=tree.index,
        )
