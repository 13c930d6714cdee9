# SPDX-License-Identifier: Apache-2.0
"""The embedded switch as a Mininet node."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from dataplane.programs import PATCH

DEADLINE_S = 90.0
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def run(program: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Ping between two hosts on a switch with the program."""
    arguments = [str(program), str(folder / "log"), str(folder), str(free_port())]
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_hosts_reach_each_other_through_the_switch(tmp_path: Path) -> None:
    done = run(PATCH.json, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [0.0, 0]
    assert "ready grpc=0.0.0.0:" in (tmp_path / "log").read_text()
    assert (tmp_path / "rwm1-eth1_in.pcap").stat().st_size > 0


def test_a_switch_that_does_not_start_gives_its_output(tmp_path: Path) -> None:
    program = tmp_path / "wrong.json"
    program.write_text("{")
    done = run(program, tmp_path)
    assert done.returncode != 0
    assert "switch rwm1 did not start: railweave-simple-switch-grpc: " in done.stderr
