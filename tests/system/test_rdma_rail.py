# SPDX-License-Identifier: Apache-2.0
"""The RDMA rail on real interfaces: the errors that name what is wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from system.namespaces import inside
from system.rdma_hosts import NIC, Hosts, bridged

from railweave._native.agent import Agent

RANKS = 2


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with bridged(RANKS) as made:
        yield made


@pytest.mark.parametrize(
    ("interface", "address", "message"),
    [
        ("nic9", "10.3.0.1", "network interface 'nic9': No such device"),
        (NIC, "10.3.0.77", "UDP port 4791 at 10.3.0.77 on 'eth0': is that the interface's address"),
        (NIC, "host", "'host' is not an IPv4 address"),
    ],
)
def test_what_cannot_be_opened_is_named(hosts: Hosts, interface: str, address: str, message: str) -> None:
    with inside(hosts.namespaces[0]), pytest.raises((OSError, ValueError, RuntimeError), match=message):
        Agent(0, 2).add_rdma("rdma", address, interface)


def test_an_mtu_that_is_too_small_is_named(hosts: Hosts) -> None:
    with inside(hosts.namespaces[0]):
        subprocess.run(["ip", "link", "set", NIC, "mtu", "1000"], check=True)
        try:
            with pytest.raises(
                RuntimeError, match=r"interface 'eth0' has an MTU of 1000: expected 1088 or more"
            ):
                Agent(0, 2).add_rdma("rdma", hosts.address(0), NIC)
        finally:
            subprocess.run(["ip", "link", "set", NIC, "mtu", "1500"], check=True)


def test_members_that_do_not_fit_are_named(hosts: Hosts) -> None:
    agent = Agent(0, 2)
    agent.set_secret(bytes(32))
    with inside(hosts.namespaces[0]):
        agent.add_rdma("rdma", hosts.address(0), NIC)
    good = (hosts.address(1), hosts.mac(1), [500, 0])
    for members, message in (
        ([good], "1 members for a world of 2"),
        ([good, (hosts.address(1), hosts.mac(1), [500])], "offers 1 queue pairs to a world of 2"),
        ([good, (hosts.address(1), "02:00", [500, 0])], "'02:00' is not a MAC address"),
        ([good, ("10.3.0", hosts.mac(1), [500, 0])], "'10.3.0' is not an IPv4 address"),
        ([good, (hosts.address(1), hosts.mac(1), [1, 0])], "offers queue pair 1: expected 256 to"),
    ):
        with pytest.raises(ValueError, match=message):
            agent.connect_rdma(0, members)
