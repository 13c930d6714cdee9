# SPDX-License-Identifier: Apache-2.0
"""RDMA rails on Linux rdma_rxe. Virtual machines run this checkout and check every number."""

from __future__ import annotations

import ipaddress
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from system.namespaces import dropping, inside, ip, namespace
from system.rxe import machine
from system.rxe.machine import HOST, PREFIX, Machine, Meeting, booted, meeting, rank_here
from system.rxe.rank import Line, carry_out

from railweave._native import roce
from railweave._native.agent import Agent, RdmaPlace
from railweave._native.roce import Operation, QueuePairOptions, Status
from railweave.hosts.events import RailOffer

pytestmark = pytest.mark.xdist_group("virtual machines")  # they need much memory
BRIDGE, PORT, NIC = "br0", "port0", "nic0"  # the machines' bridge, its port to us, and our interface
MACHINES = [Machine(f"tap{n}", f"52:54:00:09:00:0{n}", f"10.9.0.{n}") for n in (2, 3)]
LARGE = 4 << 20  # bytes that the task `large` reduces
USER_SPACE = 2  # the rank outside the machines

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def network() -> Iterator[int]:
    """Make a namespace with a bridge between our interface and the machines' tap devices."""
    with namespace() as made:
        with inside(made):
            ip("link", "add", BRIDGE, "type", "bridge")
            ip("link", "set", BRIDGE, "arp", "off", "up")  # else the bridge would answer for our address
            ip("link", "add", NIC, "type", "veth", "peer", "name", PORT)
            ip("address", "add", f"{HOST}/{PREFIX}", "dev", NIC)
            for each in MACHINES:
                ip("tuntap", "add", each.tap, "mode", "tap")
            for port in (PORT, *(each.tap for each in MACHINES)):
                ip("link", "set", port, "master", BRIDGE, "up")
            for device in (NIC, "lo"):  # our rank connects to the meeting over loopback
                ip("link", "set", device, "up")
        yield made


def rank_of_ours(line: Line, task: Answer, rank: int, interface: str) -> None:
    """Do a task as our rank. In the task `failing`, this rank makes rank 0 fail."""
    if task["task"] != "failing":
        return carry_out(line, task, rank, interface)
    endpoint = roce.Endpoint(interface, int(ipaddress.ip_address(HOST)))
    own = endpoint.reserve()
    offer = RailOffer("rdma", "rdma", "rdma", HOST, endpoint.mac.hex(":"), roce.UDP_PORT, (own, own, 0))
    peer = line.join("", rails=[offer], on_event=lambda _: None).members[0][0]
    theirs = peer.queue_pairs[rank]
    options = QueuePairOptions(own, theirs, own, theirs, retries=1000)
    to = (int(ipaddress.ip_address(peer.address)), bytes.fromhex(peer.mac.replace(":", "")))
    queue_pair = endpoint.connect(options, *to)
    queue_pair.post(1, Operation.WRITE, np.zeros(8, np.uint8), remote_address=64, rkey=64)
    while (done := queue_pair.poll()) is None:
        endpoint.step(2_000_000)
    line.say(result={"refused": done.status is Status.REMOTE_ACCESS_ERROR})
    return None


@pytest.fixture(scope="module")
def ranks(network: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    """Two machines, and a rank of ours in user space."""
    kernel, folder = machine.kernel(), tmp_path_factory.mktemp("verbs")
    with (
        meeting(network) as made,
        booted(kernel, folder, network, made, MACHINES),
        rank_here(made, network, USER_SPACE, NIC, rank_of_ours),
    ):
        made.wait_for(USER_SPACE + 1)
        yield made


def test_all_collectives_between_machines_and_user_space(ranks: Meeting) -> None:
    answers = ranks.run("collectives")
    for answer in answers:
        assert answer.get("compared", 0) > 3_000_000, answer
    assert [answer["where"] for answer in answers[:USER_SPACE]] == [["on device rxe0"]] * 2
    assert answers[USER_SPACE]["where"][0].startswith("in user space: no RDMA device has a RoCEv2 GID for")


def test_lost_packets_change_no_number(ranks: Meeting, network: int) -> None:
    ports = (PORT, *(each.tap for each in MACHINES))
    with dropping(network, dict.fromkeys(ports, "numgen random mod 100 < 1")):
        answers = ranks.run("large")
        with inside(network):
            rules = subprocess.run(["nft", "list", "ruleset"], check=True, capture_output=True, text=True)
    assert [answer.get("payload") for answer in answers] == [[LARGE]] * 3
    assert "packets 0 bytes 0" not in rules.stdout, "nothing was lost"


def test_a_rank_that_is_killed_is_named(ranks: Meeting) -> None:
    left, killed = ranks.run("killed", ranks=[0, 1])
    assert killed == {"died": True}
    assert "rank 1 at 10.9.0.3 does not answer" in left["text"]


def test_a_queue_pair_that_dies_is_named(ranks: Meeting) -> None:
    """A peer writes to forbidden memory, and the device puts the queue pair into the error state."""
    victim, other, offender = ranks.run("failing")
    assert offender == {"refused": True}
    assert re.search(
        r"rank 2 at 10\.9\.0\.1 is cut off: queue pair \d+ of device 'rxe0' has died", victim["text"]
    )
    assert "queue pair" in other["text"], "it is told why"


@pytest.mark.parametrize("sums", [False, True])
def test_without_a_device_the_rail_says_what_is_missing(sums: bool) -> None:
    with pytest.raises(RuntimeError, match=r"no RDMA device has a RoCEv2 GID for 127\.0\.0\.1|no libibverbs"):
        Agent(0, 2).add_rdma("rdma", "127.0.0.1", "lo", sums=sums, place=RdmaPlace.DEVICE)
