# SPDX-License-Identifier: Apache-2.0
"""The embedded switch as a Mininet node, between two hosts that ping each other."""

from __future__ import annotations

import json
from pathlib import Path

from commands import python
from dataplane.programs import PATCH
from free_ports import free_port

SCRIPT = """
import json, sys
from mininet.net import Mininet
from railweave.mininet import P4Switch

program, log, pcap, grpc_port = sys.argv[1:]
net = Mininet(switch=P4Switch, controller=None)
switch = net.addSwitch("rwm1", json_path=program, log_file=log, pcap_dump=pcap, grpc_port=int(grpc_port))
for number in (1, 2):
    net.addLink(net.addHost(f"rwm-h{number}", ip=f"10.88.0.{number}/24"), switch)
try:
    net.start()
    lost = net.pingAll(timeout=5)
finally:
    net.stop()
print(json.dumps([lost, switch.device_id]))
"""


def test_hosts_reach_each_other_through_the_switch(tmp_path: Path) -> None:
    with free_port() as port:
        done = python("-c", SCRIPT, PATCH.json, tmp_path / "log", tmp_path, port)
    assert json.loads(done.stdout.splitlines()[-1]) == [0.0, 0]
    assert "ready grpc=0.0.0.0:" in (tmp_path / "log").read_text()
    assert (tmp_path / "rwm1-eth1_in.pcap").stat().st_size > 0


def test_a_switch_that_does_not_start_gives_its_output(tmp_path: Path) -> None:
    program = tmp_path / "wrong.json"
    program.write_text("{")
    with free_port() as port:
        done = python("-c", SCRIPT, program, tmp_path / "log", tmp_path, port, status=1)
    assert "switch rwm1 did not start: railweave-simple-switch-grpc: " in done.stderr
