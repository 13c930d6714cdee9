# SPDX-License-Identifier: Apache-2.0
"""Place the trees of a job's rails, as far as quotas and switches allow."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address

from railweave.controller import composition, requests
from railweave.controller.composition import Member
from railweave.controller.desired import Aggregation
from railweave.controller.errors import Refused, SwitchUnavailable
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
        """Place as many trees of a rail as there is room for. Refused if there is room for none.

        If some switches cannot aggregate and no tree joins all ranks, the ranks form a ring of racks.
        """
        hosts = self.hosts(group, rail.name)
        try:
            quota = self._quotas.share(group.job)
            trees = self._fabric.plan(rail.plane, hosts, quota.trees, last_resort=True)
        except Refused as refused:
            plane = self._fabric.topology.plane(rail.plane)
            if isinstance(refused, SwitchUnavailable) or not composition.mixed(plane):
                raise
            await self._compose(group, rail, hosts)
            return
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

    async def _compose(self, group: Group, rail: pb.RailOffer, hosts: Mapping[int, Host]) -> None:
        """Place a tree for every rack, as far as there is room, and order all members of the ring."""
        plane = self._fabric.topology.plane(rail.plane)
        nics = {rank: host.nic for rank, host in hosts.items()}
        members: list[Member] = []
        trees: dict[tuple[int, ...], RailTree] = {}
        for ranks in composition.racks(plane, nics):
            try:
                if not composition.fits(len(ranks), map(len, trees)):
                    raise Refused(
                        f"racks of {len(ranks)} ranks and of others need too many columns",
                        f"sizes whose least common multiple is at most {composition.MAX_COLUMNS}",
                        "run equally many ranks in each rack",
                    )
                slots = slots_per_tree(self._quotas.share(group.job).slots, 1)
                (tree,) = self._fabric.plan(rail.plane, among(hosts, ranks), last_resort=True)
                placed = await self._fabric.admit(rail.plane, among(hosts, ranks), tree, slots)
            except SwitchUnavailable:
                self._give_back(trees.values())
                raise
            except Refused as refused:
                members += [Member((rank,), str(refused)) for rank in ranks]
                continue
            members.append(Member(ranks))
            trees[ranks] = RailTree(rail.name, rail.plane, 0, slots)
            trees[ranks].put(placed)
        taken = {rank for member in members for rank in member.ranks}
        members += [composition.alone(plane, rank, nics) for rank in sorted(hosts.keys() - taken)]
        group.rings[rail.name] = composition.in_order(plane, members, nics)
        for index, member in enumerate(group.rings[rail.name]):
            if member.ranks in trees:
                trees[member.ranks].index = index
                group.trees.append(trees[member.ranks])

    def _give_back(self, trees: Iterable[RailTree]) -> None:
        for tree in trees:
            if tree.placed:
                self._fabric.remove(tree.placed.group)

    async def again(self, group: Group, tree: RailTree) -> Aggregation:
        """Return a new place for a tree, with a new group. Refused if there is no place now."""
        hosts = among(self.hosts(group, tree.rail), tree.numbers)
        (best,) = self._fabric.plan(tree.plane, hosts)
        return await self._fabric.admit(tree.plane, hosts, best, tree.slots)

    def possible(self, group: Group, tree: RailTree) -> bool:
        """Return whether the network has a tree for these ranks now."""
        try:
            return bool(self._fabric.plan(tree.plane, among(self.hosts(group, tree.rail), tree.numbers)))
        except Refused:
            return False

    def adopt(self, group: Group, claims: dict[int, Claim]) -> tuple[RailTree, str]:
        """Adopt a tree of an earlier controller from its ranks' claims. Return it, and why it must move.

        The reason is empty if the tree runs on: all ranks agree, it is not paused, and the switches hold it.
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
            hosts = among(self.hosts(group, first.rail), claims)
            tree.placed = self._fabric.adopt(first.group, rail.plane, first.virtual_ip, hosts)
        except Refused as refused:
            return tree, str(refused)
        return tree, ""

    def hosts(self, group: Group, rail: str) -> dict[int, Host]:
        """Return the ranks' places on a rail's plane."""
        hosts = {}
        for rank, request in group.requests.items():
            offer = next(other for other in request.rails if other.name == rail)
            endpoint = Endpoint(mac_number(offer.mac), ip_number(offer.address), offer.port)
            plane = self._fabric.topology.plane(offer.plane)
            hosts[rank] = Host(requests.nic(offer, plane), endpoint)
        return hosts

    def message(self, tree: RailTree, rank: int) -> pb.InaGroup:
        """Return a rank's place in a placed tree as a message."""
        placed = tree.placed
        assert placed is not None  # noqa: S101 - callers have just placed the tree
        _, contributor = placed.tree.place(rank)
        return pb.InaGroup(
            rail=tree.rail,
            group=placed.group,
            virtual_address=str(IPv4Address(placed.virtual_ip)),
            udp_port=INA_UDP_PORT,
            child=contributor.child,
            slots=tree.slots,
            lanes=self._fabric.lanes[placed.plane],
            depth=placed.tree.depth(rank),
            tree=tree.index,
        )

    def ring(self, group: Group, rail: str) -> pb.Ring:
        """Return the ring of a rail as a message."""
        offers = (offer for request in group.requests.values() for offer in request.rails)
        lanes = self._fabric.lanes[next(offer.plane for offer in offers if offer.name == rail)]
        return pb.Ring(rail=rail, lanes=lanes, members=ring_members(group.rings[rail]))


def ring_members(members: Iterable[Member]) -> list[pb.RingMember]:
    """Return the members of a ring as messages."""
    return [pb.RingMember(ranks=member.ranks, reason=member.reason) for member in members]


def among(hosts: Mapping[int, Host], ranks: Collection[int]) -> dict[int, Host]:
    """Return the hosts of these ranks only."""
    return {rank: hosts[rank] for rank in ranks}
