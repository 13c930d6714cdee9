# SPDX-License-Identifier: Apache-2.0
"""RDMA rails on Linux rdma_rxe. Virtual machines run this checkout and check every number."""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from system.namespaces import dropping, inside, ip
from system.rxe import guest as rxe
from system.rxe.guest import Place
from system.rxe.kernel import HOST_FILES, Kernel, KernelMissing, find_kernel
from system.rxe.machine import Machine, Meeting, booted, meeting, rank_here
from system.rxe.rank import Line, carry_out

from railweave._native import roce
from railweave._native.agent import Agent, RdmaPlace
from railweave._native.roce import Operation, QueuePairOptions, Status
from railweave.hosts.events import RailOffer

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "railweave"
FIRST, SECOND = Place(), Place("tap1", "52:54:00:09:00:03", "10.9.0.3")
LARGE = 3 * (4 << 20)  # bytes that the task `large` reduces
USER_SPACE = 2  # the rank outside the machines, in tests that have such a rank

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    if reason := rxe.missing():
        pytest.skip(reason)
    try:
        return find_kernel(CACHE, HOST_FILES)
    except KernelMissing as error:
        pytest.skip(f"rxe test has no kernel: {error}")


@pytest.fixture(scope="module")
def pair(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    """Two devices of one machine, connected by a link inside it."""
    folder = tmp_path_factory.mktemp("pair")
    with (
        rxe.network() as network,
        meeting(network) as made,
        booted(kernel, folder, network, made, [Machine(FIRST, ("v0", "v1"))]),
    ):
        yield made


def test_all_collectives_between_two_devices(pair: Meeting) -> None:
    for rank, answer in enumerate(pair.run("collectives")):
        assert answer.get("compared", 0) > 2_000_000, answer
        assert answer["where"] == [f"on device rxe{rank}"]


def test_large_tensors_between_two_devices(pair: Meeting) -> None:
    assert [answer.get("payload") for answer in pair.run("large")] == [[LARGE]] * 2


def test_a_rank_that_is_killed_is_named(pair: Meeting) -> None:
    left, killed = pair.run("killed")
    assert killed == {"died": True}
    assert "rank 1 at 10.8.0.2 does not answer" in left["text"]


def test_a_rail_on_devices_comes_back(pair: Meeting) -> None:
    """It uses new packet numbers on the same queue pairs."""
    for answer in pair.run("restarted", rails="rdma@IF,tcp@lo"):
        assert answer.get("down") == [True, False], answer


@pytest.fixture(scope="module")
def network() -> Iterator[int]:
    with rxe.network() as made:
        with inside(made):
            ip("link", "set", "lo", "up")  # our rank connects to the meeting over loopback
            ip("tuntap", "add", SECOND.tap, "mode", "tap")
            ip("link", "set", SECOND.tap, "master", rxe.BRIDGE, "up")
        yield made


def rank_of_ours(line: Line, task: Answer, rank: int, interface: str) -> None:
    """Do a task as our rank. In the task `failing`, this rank makes rank 0 fail."""
    if task["task"] != "failing":
        return carry_out(line, task, rank, interface)
    endpoint = roce.Endpoint(interface, int(ipaddress.ip_address(rxe.HOST)))
    own = endpoint.reserve()
    offer = RailOffer("rdma", "rdma", "rdma", rxe.HOST, endpoint.mac.hex(":"), roce.UDP_PORT, (own, own, 0))
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
def mixed(kernel: Kernel, network: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    """Two machines, and a rank of ours in user space."""
    folder = tmp_path_factory.mktemp("mixed")
    with (
        meeting(network) as made,
        booted(kernel, folder, network, made, [Machine(FIRST), Machine(SECOND)]),
        rank_here(made, network, USER_SPACE, rxe.NIC, rank_of_ours),
    ):
        made.wait_for(USER_SPACE + 1)
        yield made


def test_all_collectives_between_two_machines(mixed: Meeting) -> None:
    for answer in mixed.run("collectives", ranks=[0, 1]):
        assert answer.get("compared", 0) > 2_000_000, answer
        assert answer["where"] == ["on device rxe0"]


def test_all_collectives_between_machines_and_user_space(mixed: Meeting) -> None:
    answers = mixed.run("collectives")
    for answer in answers:
        assert answer.get("compared", 0) > 3_000_000, answer
    assert answers[USER_SPACE]["where"][0].startswith("in user space: no RDMA device has a RoCEv2 GID for")


def test_lost_packets_change_no_number(mixed: Meeting, network: int) -> None:
    with dropping(network, dict.fromkeys((FIRST.tap, SECOND.tap, rxe.PORT), "numgen random mod 100 < 1")):
        answers = mixed.run("large")
        with inside(network):
            rules = subprocess.run(["nft", "list", "ruleset"], check=True, capture_output=True, text=True)
    assert [answer.get("payload") for answer in answers] == [[LARGE]] * 3
    assert "packets 0 bytes 0" not in rules.stdout, "nothing was lost"


def test_a_queue_pair_that_dies_is_named(mixed: Meeting) -> None:
    """A peer writes to forbidden memory, and the device puts the queue pair into the error state."""
    victim, other, offender = mixed.run("failing")
    assert offender == {"refused": True}
    assert re.search(
        r"rank 2 at 10\.9\.0\.1 is cut off: queue pair \d+ of device 'rxe0' has died", victim["text"]
    )
    assert "queue pair" in other["text"], "it is told why"


@pytest.mark.parametrize("sums", [False, True])
def test_without_a_device_the_rail_says_what_is_missing(sums: bool) -> None:
    with pytest.raises(RuntimeError, match=r"no RDMA device has a RoCEv2 GID for 127\.0\.0\.1|no libibverbs"):
        Agent(0, 2).add_rdma("rdma", "127.0.0.1", "lo", sums=sums, place=RdmaPlace.DEVICE)
