# SPDX-License-Identifier: Apache-2.0
"""Interfaces that are deleted and created again with the same name. Rails follow to the new interface."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

import pytest
from protocol.loopback_switch import GROUP, LANES, SLOTS, LoopbackSwitch
from protocol.rail_world import SECRET, World
from system.namespaces import inside, ip, path_of
from system.plane_network import PlaneNetwork, plane_network
from system.rdma_hosts import Hosts, bridged
from system.steady_calls import steady_calls
from system.test_rail_restarts import Apart

from railweave._rigs.rails import Rails
from railweave.topologies.lab.faults import Step, Tool
from railweave.topologies.lab.namespaces import BRIDGE, interface_of_port
from railweave.topologies.model import Nic

RAILS = ("tcp", "rdma")
EQUAL = {"tcp": 1, "rdma": 1}
RANKS, HARMED = 3, 1
OTHER_MAC = "02:00:00:aa:bb:cc"


@pytest.fixture
def network() -> Iterator[PlaneNetwork]:
    """Hosts that use ARP, because no static neighbour entries exist here."""
    with plane_network(RANKS, RAILS) as made:
        for rank, host in enumerate(made.topology.hosts):
            lines = [f"neighbour flush dev {nic.interface} nud permanent" for nic in nics(made, rank)]
            made.do([Step(host, Tool.IP, "\n".join(lines) + "\n")])
        yield made


def nics(network: PlaneNetwork, rank: int) -> list[Nic]:
    host = network.topology.hosts[rank]
    return [nic for plane in network.topology.planes for nic in plane.nics if nic.host == host]


def delete(network: PlaneNetwork, nic: Nic) -> None:
    network.do([Step(nic.host, Tool.IP, f"link delete {nic.interface}\n")])


def make_anew(network: PlaneNetwork, nic: Nic, mac: str) -> None:
    port = interface_of_port(nic.switch, nic.port)
    host = network.at(network.topology.hosts.index(nic.host))
    network.do(
        [
            Step(
                nic.switch,
                Tool.IP,
                f"link add {port} type veth peer name {nic.interface} address {mac} netns {path_of(host)}\n"
                f"link set {port} master {BRIDGE} up\n",
            ),
            Step(
                nic.host,
                Tool.IP,
                f"link set {nic.interface} up\naddress add {nic.address}/24 dev {nic.interface}\n",
            ),
        ]
    )


@pytest.mark.parametrize("same_mac", [True, False], ids=["same MAC", "another MAC"])
@pytest.mark.parametrize("rail", RAILS)
def test_a_rail_whose_interface_is_replaced_is_readmitted(
    network: PlaneNetwork, rail: str, same_mac: bool
) -> None:
    """Its heartbeats and its listener work again, and its peers reach it again."""
    place = RAILS.index(rail)
    nic = nics(network, HARMED)[place]
    with steady_calls(network, shares=EQUAL) as calls:
        calls.rounds(2)
        delete(network, nic)
        calls.all_see(rail, ("down", "recovering"))
        make_anew(network, nic, nic.mac if same_mac else OTHER_MAC)
        calls.all_see(rail, ("up",))
        calls.used_again(rail)


def test_a_rail_whose_interface_is_replaced_on_all_hosts_is_readmitted(network: PlaneNetwork) -> None:
    """All MAC addresses differ from those at the time when the ranks met."""
    replaced = [nics(network, rank)[RAILS.index("rdma")] for rank in range(RANKS)]
    with steady_calls(network, shares=EQUAL) as calls:
        calls.rounds(2)
        for nic in replaced:
            delete(network, nic)
        calls.all_see("rdma", ("down", "recovering"))
        for number, nic in enumerate(replaced):
            make_anew(network, nic, f"02:00:00:aa:00:{number:02x}")
        calls.all_see("rdma", ("up",))
        calls.used_again("rdma")


# ---------------------------------------------------------------- in-network


SWITCH_ADDRESS = "10.3.0.100"


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Two hosts on a bridge, in whose namespace the model switch runs."""
    with bridged(2) as made:
        with inside(made.switch):
            # Without its own address, the bridge takes the MAC of a port, which changes with its ports.
            ip("link", "set", "bridge", "address", "02:00:00:04:00:64")
            ip("address", "add", f"{SWITCH_ADDRESS}/24", "dev", "bridge")
        yield made


@pytest.mark.parametrize("trees", [1, 2])
def test_an_in_network_rail_follows_its_interface(hosts: Hosts, trees: int) -> None:
    """Its sockets to the switch and its control listener move. The switch still knows its old port.

    With two trees, each tree has a worker if there are enough CPUs.
    """
    groups = [GROUP + tree for tree in range(trees)]
    cpus = sorted(os.sched_getaffinity(0))[:trees]
    with inside(hosts.switch):
        switch = LoopbackSwitch(SWITCH_ADDRESS, hosts=2)
    switch.restart(*groups)
    try:
        world = World(2, cast(Rails, Apart(hosts)), counts=(1, 100, 10_000))
        members = [
            (hosts.address(rank), world.rails.open_ina(rank, hosts.address(rank), "eth0"))
            for rank in range(2)
        ]
        for rank in range(2):
            world.rails.attach(rank, [(group, SWITCH_ADDRESS) for group in groups], SLOTS, LANES, cpus)
            world.rails.connect_tcp(rank, SECRET, members)
        world.run(world.all_ready)
        slices = world.new_slices()
        for rank in range(2):
            world.start(rank, slices)
        world.finish(slices)
        senders = dict(switch.children)
        for rank in range(2):
            world.halt(rank)
        with inside(hosts.namespaces[1]):
            ip("link", "delete", "eth0")
        with pytest.raises(RuntimeError, match="eth0"):
            world.rails.restart(1, 1, world.greatest_chunks())
        hosts.lay(1, OTHER_MAC)
        again = world.new_slices()
        world.restart(2, again, world.greatest_chunks())
        world.finish(again)
        assert switch.children == senders
    finally:
        switch.close()
