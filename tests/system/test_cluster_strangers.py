# SPDX-License-Identifier: Apache-2.0
"""A stranger in the cluster of docs/howto/cluster.md, on the management network and at a switch port."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest
from system.cluster_document import ONE_CLUSTER
from system.machines import Machine
from system.test_cluster import wait_until_well

pytestmark = ONE_CLUSTER
FILE = "/etc/railweave/cluster.yaml"
RANKS = """
from pathlib import Path
import numpy as np
import railweave
wrong = calls = stop = 0
x = np.arange(100_000, dtype=np.float32)
with railweave.init(rails="ina") as comm:
    while not stop:
        wrong += int((comm.all_reduce(x) != 2 * x).sum())
        stop = comm.all_reduce(np.float32([Path("/etc/stop").exists()]))[0]
        calls += 1
        if calls == 3:
            print(comm.stats().rails[0].groups[0].group, flush=True)
print("wrong", wrong, flush=True)
"""
# It sends contributions to a group with the addresses of both nodes, and then results of the group, for every
# slot and for the next rounds.
FORGER = """
import socket, sys
from dataplane.packets import Chunk, Member, RESULT, frame, Station
from hostile.forging import udp
from hostile.stranger import Stranger
to = Station(0x0A01FF01, 0x02FE0A01FF01)
nodes = [Member(0x0A01000A + n, 0x525400010010 + n, port=0, child=n) for n in (0, 1)]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(("enp1s0", 0))
    for number in range(800):
        node, slot, round_ = nodes[number % 2], number // 2 % 16, number // 32
        for child in (0, 1):
            chunk = Chunk(group=int(sys.argv[1]), child=child, slot=slot, round=round_, lanes=(12345,) * 256)
            raw.send(frame(node, to, chunk.pack()))
    node = nodes[0]
    ports = Stranger(raw, Station(0x0A010042, 0x525400010042)).scan(node, range(32768, 61000)) or [40000]
    for number in range(800):
        slot, round_ = number % 16, number // 16
        chunk = Chunk(kind=RESULT, group=int(sys.argv[1]), slot=slot, round=round_, lanes=(12345,) * 256)
        raw.send(udp(to, node, 5257, ports[number % len(ports)], chunk.pack()))
"""
COUNTERS = """
import json
from railweave.access import access_of
from railweave.topologies.cluster import load
from railweave.v1 import controller_pb2 as pb, controller_pb2_grpc as pb_grpc
cluster = load("/etc/railweave/cluster.yaml")
with access_of(cluster).channel(cluster.controller) as channel:
    switch, = pb_grpc.ControllerStub(channel).GetSwitchCounters(pb.SwitchCountersRequest()).switches
print(json.dumps(dict(switch.packets)))
"""


def forged(machine: Machine) -> int:
    """Return the number of frames that the switch has dropped because of a forged source."""
    return int(json.loads(machine.run(f"python -c '{COUNTERS}'"))["forged_sources"])


@pytest.mark.parametrize(
    "asked",
    [
        "railweave why --controller 10.0.0.9:9600",
        "railweave switch impair --grpc 10.0.0.9:9559 1:loss=1",
        "cd /tmp; RANK=0 WORLD_SIZE=2 RAILWEAVE_CONTROLLER=10.0.0.9:9600 RAILWEAVE_RAILS=ina@enp1s0 "
        "RAILWEAVE_TIMEOUT_S=3 python -c 'import railweave; railweave.init()'",
    ],
)
def test_a_stranger_on_the_management_network_gets_no_answer(
    cluster_machines: Mapping[str, Machine], asked: str
) -> None:
    stranger = cluster_machines["stranger"]
    stranger.run("ip address replace 10.1.0.66/16 dev enp1s0; ip link set enp1s0 up")
    said = stranger.run(asked, code=3 if asked.startswith("railweave") else 1)
    assert re.search(
        r"no answer|no switch answers|no controller answered|expected a controller there", said
    ), said


def test_a_host_cannot_open_the_switches(cluster_machines: Mapping[str, Machine]) -> None:
    """The hosts' CA has issued the host's certificate, and the switches do not trust this CA."""
    own = "--tls-ca hosts.pem --tls-cert own.pem --tls-key own.key"
    said = cluster_machines["node0"].run(
        f"cd /etc/railweave; railweave switch tables --grpc 10.0.0.9:9559 {own}", code=3
    )
    assert "no switch answers" in said


def test_a_stranger_at_a_port_of_the_switch_changes_no_sum(cluster_machines: Mapping[str, Machine]) -> None:
    box, node0, node1, stranger = (cluster_machines[name] for name in ("box", "node0", "node1", "stranger"))
    box.run("ip link set p3 up; sed -i 's/2@p2 --grpc/2@p2 -i 3@p3 --grpc/' /etc/railweave/switch.env")
    box.run("systemctl restart railweave-switch")
    stranger.run("ip link set enp1s0 up")
    wait_until_well(node0)
    before = forged(node0)
    ranks = [
        node.start(f"python -c '{RANKS}'", RANK=str(rank), WORLD_SIZE="2", RAILWEAVE_CLUSTER=FILE)
        for rank, node in enumerate((node0, node1))
    ]
    (group,) = {int(rank.stdout.readline()) for rank in ranks if rank.stdout}
    stranger.run(f"cd /opt/railweave/tests; python -c '{FORGER}' {group}")
    node0.run("touch /etc/stop")
    assert [rank.communicate()[0] for rank in ranks] == ["wrong 0\n"] * 2
    assert forged(node0) >= before + 2400
    node0.run("rm /etc/stop")
