# SPDX-License-Identifier: Apache-2.0
"""RDMA and netreduce rails on Linux rdma_rxe: virtual machines at a switch that adds, and its controller.

The machines run this checkout and check every number.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from system.namespaces import inside, ip, namespace
from system.rxe import machine
from system.rxe.machine import HOST, PREFIX, Machine, Meeting, booted, meeting

from railweave._native.agent import Agent, RdmaPlace
from railweave.topologies.lab.faults import Tool
from railweave.topologies.model import Nic, Plane, Switch, Topology
from railweave.topologies.serialize import to_yaml

GRPC = "127.0.0.1:9559"
OUR_PORT, OUR_MAC = 9, "52:54:00:09:00:01"
MEMBERS = [Machine(f"tap{n}", f"52:54:00:09:01:0{n}", f"10.9.0.{10 + n}") for n in (1, 2)]
USER_SPACE = len(MEMBERS)  # the rank outside the machines
BY_SWITCH = "sums and means by the switch, the rest by the hosts"
LISTEN = f"{HOST}:9600"
LEASE_S = 60  # long, because emulated machines are slow
READY_S = 30.0
ENDED = 8  # most queue pairs that a test ends
TESTS = Path(__file__).parents[1]


def topology() -> Topology:
    """Return a topology of one network, which rails without the switch's sums use too."""
    nics = [Nic(place.tap, place.tap, place.address, place.mac, "s", n) for n, place in enumerate(MEMBERS, 1)]
    nics.append(Nic("we", "nic0", HOST, OUR_MAC, "s", OUR_PORT))
    switches = (Switch("s", GRPC),)
    made = Plane("netreduce", "netreduce", f"10.9.0.0/{PREFIX}", 0, switches, tuple(nics))
    others = []
    for kind in ("tcp", "rdma"):  # in topologies, each plane has its own switch
        on_bridge = tuple(replace(nic, switch=f"{kind} bridge") for nic in nics)
        others.append(
            replace(made, name=kind, kind=kind, switches=(Switch(f"{kind} bridge"),), nics=on_bridge)
        )
    return Topology("machines", tuple(nic.host for nic in nics), (made, *others))


def lay_links() -> None:
    """Make the machines' tap devices and our own link, as ports of the switch."""
    ip("link", "set", "lo", "up")
    for place in MEMBERS:
        ip("tuntap", "add", place.tap, "mode", "tap")
        ip("link", "set", place.tap, "arp", "off", "up")  # else it would answer for our side's address
    ip("link", "add", "nic0", "address", OUR_MAC, "type", "veth", "peer", "name", "port0")
    ip("address", "add", f"{HOST}/{PREFIX}", "dev", "nic0")
    for device in ("port0", "nic0"):
        ip("link", "set", device, "up")


@contextmanager
def ready(network: int, *command: str) -> Iterator[None]:
    """Run a railweave daemon in the network namespace."""
    line = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "railweave", *command]
    with inside(network):
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    with process:
        watchdog = threading.Timer(READY_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            watchdog.cancel()
            yield
        finally:
            watchdog.cancel()
            process.terminate()


@dataclass(frozen=True)
class World:
    """The machines and our rank, connected to the switch."""

    network: int
    ranks: Meeting
    topology: Path

    @contextmanager
    def controller(self, loss: float = 0.0) -> Iterator[None]:
        """Run a controller. With `loss`, the switch drops frames at each port in both directions."""
        options = ("--topology", str(self.topology), "--listen", LISTEN, "--lease", str(LEASE_S))
        with ready(self.network, "controller", *options, "--loss", f"netreduce={loss}"):
            yield

    def run(self, task: str, rails: str = "netreduce@IF", **more: Any) -> list[dict[str, Any]]:
        return self.ranks.run(task, rails=rails, controller=LISTEN, **more)

    def counts(self) -> dict[str, int]:
        command = [sys.executable, "-m", "railweave.topologies.lab.switch_counters", LISTEN]
        with inside(self.network):
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout)["netreduce"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    kernel, folder = machine.kernel(), tmp_path_factory.mktemp("sums")
    (folder / "topology.yaml").write_text(to_yaml(topology()))
    with ExitStack() as stack:
        network = stack.enter_context(namespace())
        with inside(network):
            lay_links()
        made = stack.enter_context(meeting(network))
        ports = [f"{n}@{place.tap}" for n, place in enumerate(MEMBERS, 1)] + [f"{OUR_PORT}@port0"]
        interfaces = [word for port in ports for word in ("-i", port)]
        options = ("--grpc", GRPC, "--super-packet-bytes", "0")
        stack.enter_context(ready(network, "switch", *options, *interfaces))
        world = World(network, made, folder / "topology.yaml")
        with world.controller():  # without a controller the switch forwards nothing
            command = [sys.executable, "-m", "system.rxe.rank", made.address, str(USER_SPACE), "nic0"]
            with inside(network):
                ours = stack.enter_context(subprocess.Popen(command, cwd=TESTS))
            stack.callback(ours.terminate)
            stack.enter_context(booted(kernel, folder, network, made, MEMBERS, others=1))
        yield world


def test_the_switch_adds_what_devices_and_user_space_write(world: World) -> None:
    """Every number is right, and the switch makes one result per chunk, although packets are lost."""
    with world.controller(loss=0.01):
        before = world.counts()
        answers = world.run("summed", peer_timeout_s=1.0)
        after = world.counts()
    counts = {name: after[name] - before[name] for name in after}
    assert [answer.get("chunks") for answer in answers] == [counts["result"]] * len(answers), answers
    assert counts["result"] > 0
    assert all(answer["where"] == [f"{BY_SWITCH}; on device rxe0"] for answer in answers[:USER_SPACE])
    assert answers[USER_SPACE]["where"][0].startswith(f"{BY_SWITCH}; in user space: no RDMA device has")
    assert counts["bad_length"] == counts["bad_icrc"] == counts["mismatch"] == 0
    assert counts["repeat"] > 0


@contextmanager
def queue_pair_ending(world: World) -> Iterator[None]:
    """End queue pairs of the first machine's device while it sends data, until the block ends.

    The tool may wrongly report success, because an emulated machine is slow. So it ends up to ENDED pairs.
    """
    over = threading.Event()
    port = f"{MEMBERS[0].tap}\n"

    def work() -> None:
        command, ended = Tool.END_QUEUE_PAIR.value, 0
        with inside(world.network):
            while not over.is_set() and ended < ENDED:
                done = subprocess.run(command, input=port, text=True, check=False, stderr=subprocess.DEVNULL)
                ended += done.returncode == 0

    fault = threading.Thread(target=work)
    fault.start()
    try:
        yield
    finally:
        over.set()
        fault.join()


def test_a_queue_pair_that_dies_is_named(world: World) -> None:
    with world.controller(), queue_pair_ending(world):
        victim, *others = world.run("failing", ranks=range(len(MEMBERS)))
    assert re.search(r"rank 1 at .* on the connection on which the switch adds", victim["text"]), victim
    assert all("error" in other for other in others)


@pytest.mark.parametrize("kind", ["netreduce", "rdma"])
def test_a_rail_on_devices_carries_data_again(world: World, kind: str) -> None:
    """It uses the same queue pairs, with packet numbers that no rank has used."""
    with world.controller(), queue_pair_ending(world):
        both = {"rails": f"{kind}@IF,tcp@IF", "shares": {kind: 0.5, "tcp": 0.5}}
        answers = world.run("resumed", ranks=range(len(MEMBERS)), **both)
    assert all(answer.get("carried", 0) > 0 for answer in answers), answers


def test_all_collectives_between_devices_and_user_space(world: World) -> None:
    with world.controller():
        answers = world.ranks.run("collectives")
    for answer in answers:
        assert answer.get("compared", 0) > 3_000_000, answer
    assert all(answer["where"] == ["on device rxe0"] for answer in answers[:USER_SPACE])
    assert answers[USER_SPACE]["where"][0].startswith("in user space: no RDMA device has a RoCEv2 GID for")


def test_a_rank_that_is_killed_is_named(world: World) -> None:
    with world.controller():
        left, killed = world.ranks.run("killed", ranks=[0, 1])
    assert killed == {"died": True}
    assert f"rank 1 at {MEMBERS[1].address} does not answer" in left["text"]


@pytest.mark.parametrize("sums", [False, True])
def test_without_a_device_the_rail_says_what_is_missing(sums: bool) -> None:
    with pytest.raises(RuntimeError, match=r"no RDMA device has a RoCEv2 GID for 127\.0\.0\.1|no libibverbs"):
        Agent(0, 2).add_rdma("rdma", "127.0.0.1", "lo", sums=sums, place=RdmaPlace.DEVICE)
