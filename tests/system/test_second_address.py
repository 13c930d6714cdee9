# SPDX-License-Identifier: Apache-2.0
"""A NIC whose second address is the one on the plane: a rank refuses it, and so the doctor does too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """\
controller: 127.0.0.1:9600
planes:
  tcp: {network: 10.2.0.0/16}
hosts:
  this: {tcp: NIC}
  other: {tcp: 10.2.0.2}
"""
SCRIPT = """
import json, socket, sys
from railweave.commands import cluster_checks
from railweave.hosts.errors import InvalidOption
from railweave.hosts.interfaces import interface
from railweave.hosts.options import rails_of
from railweave.topologies.cluster import load

socket.gethostname = lambda: "this"
cluster = load(sys.argv[1])
steps = cluster_checks._plane(cluster, "this", "tcp", cluster.hosts["this"]["tcp"])
finding = next(one for one in steps if not one.present)
try:
    used = interface(rails_of(cluster)["tcp"].interface).address
except InvalidOption as refusal:
    used = str(refusal)
print(json.dumps([finding.name, finding.detail, finding.remedy, used]))
"""
NETWORK = (
    "ip link add name nic type veth peer name end && ip link set nic up && ip link set end up && "
    "ip address add 10.9.0.1/16 dev nic && ip address add 10.2.0.1/16 dev nic"
)


@pytest.mark.parametrize(
    ("nic", "name", "detail", "remedy", "used"),
    [
        ("nic", "tcp: address", "nic has 10.9.0.1, then 10.2.0.1", "ip address del 10.9.0.1", "10.9.0.1"),
        (
            "10.2.0.1",
            "tcp: interface",
            "no interface has 10.2.0.1",
            "correct hosts.this.tcp",
            "first address",
        ),
    ],
)
def test_a_second_address_is_not_the_one_that_ranks_use(
    tmp_path: Path, nic: str, name: str, detail: str, remedy: str, used: str
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE.replace("NIC", nic))
    command = ["unshare", "--net", "sh", "-c", f'{NETWORK} && exec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found[0] == name
    assert detail in found[1]
    assert remedy in found[2]
    assert used in found[3]
