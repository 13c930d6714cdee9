# SPDX-License-Identifier: Apache-2.0
"""The machines of docs/howto/cluster.md: a training, and the doctor on broken machines."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping

import pytest
from system.cluster_document import ONE_CLUSTER, TRAIN, Prepared, blocks, carry_out
from system.machines import Machine

pytestmark = ONE_CLUSTER
FILE = "/etc/railweave/cluster.yaml"
DEADLINE_S = 60.0
OTHER_CONTROLLER_ENDS = (
    "kill $(cat /etc/other.pid) || true; while kill -0 $(cat /etc/other.pid) 2>&-; do sleep 0.02; done\n"
    "systemctl start railweave-controller"
)
LATE = (  # replaces `time` in one module only: gRPC computes deadlines from time.time()
    "import time, types; from railweave.controller import report; "
    "report.time = types.SimpleNamespace(time=lambda: time.time() - 37); "
    "from railweave.cli import main; main()"
)
HOLDER = """
import sys
from railweave.access import access_of
from railweave.hosts import bootstrap
from railweave.topologies.cluster import load
cluster = load("/etc/railweave/cluster.yaml")
nic = cluster.hosts["node1"]["ina"]
rail = bootstrap.RailOffer("ina", "ina", "ina", nic.address, nic.mac, port=5000)
bootstrap.join(cluster.controller, job="greedy", rank=0, size=1, rails=[rail], access=access_of(cluster))
print("holds", flush=True)
sys.stdin.read()
"""


def other_controller(command: str, options: str = "") -> str:
    """Return a script that starts another controller in place of the service, and waits until it is ready."""
    return (
        "systemctl stop railweave-controller\n"
        "> /etc/other.log\n"  # else grep below could find the output of an earlier controller
        f"setsid {command} controller --cluster {FILE} {options} >> /etc/other.log 2>&1 &\n"
        "echo $! > /etc/other.pid\n"
        "until grep -q ready /etc/other.log; do kill -0 $!; sleep 0.02; done"
    )


def findings(machine: Machine) -> dict[str, dict[str, object]]:
    """Return the doctor's findings on a machine, by name."""
    said = machine.run(f"railweave doctor --cluster {FILE} --json - 2> /dev/null", code=None)
    return {finding["name"]: finding for finding in json.loads(said)["checks"]}


def wait_until_well(machine: Machine) -> None:
    """Wait until the doctor finds no fault: the controller needs a moment to find a switch again."""
    end = time.monotonic() + DEADLINE_S
    while wrong := [one for one in findings(machine).values() if not one["present"]]:
        assert time.monotonic() < end, wrong


def test_the_document_leads_from_cables_to_a_training(cluster: Prepared) -> None:
    machines, said = cluster
    checks = said["See each plane work"]
    assert "no rank can run here" in " ".join(checks["box"].split())
    for host in ("node0", "node1"):
        assert "can take part in the cluster" in checks[host]
        assert "256 numbers came back" in checks[host]
    (train,) = (block for block in blocks() if block.title == TRAIN)
    told = re.compile(r"accuracy 0\.9\d+, parameters (\w+), over ina (\S+) MB, tcp (\S+) MB, rdma (\S+) MB")
    trained = carry_out(train, machines)
    ends = [match.groups() for text in trained.values() if (match := told.search(text))]
    assert len(ends) == 2, trained
    assert ends[0][0] == ends[1][0]
    assert all(float(carried) > 0 for _, *rails in ends for carried in rails), ends


def test_a_machine_in_order(cluster_machines: Mapping[str, Machine]) -> None:
    found = findings(cluster_machines["node0"])
    assert all(finding["present"] for finding in found.values())
    assert {*found} == {
        *("controller", "clock", "switch box, P4Runtime", "switch box, slots", "host"),
        *(f"{plane}: {what}" for plane in ("ina", "tcp", "rdma") for what in ("link", "address", "to node1")),
        "ina: sum in the network",
        "UDP super-packets (RDMA rails)",
    }
    assert "with TLS and token" in found["controller"]["detail"]


# Each round breaks several machines: how to break and repair one, the finding's name, detail and remedy.
ROUNDS = [
    [
        (
            "node0: ip link set enp2s0 down",
            "node0: ip link set enp2s0 up",
            *("tcp: link", "enp2s0 is down", "ip link set enp2s0 up"),
        ),
        (
            "node0: ip link set enp3s0 mtu 1400",
            "node0: ip link set enp3s0 mtu 1500",
            *("rdma: link", "enp3s0 has an MTU of 1400", "ip link set enp3s0 mtu 1500"),
        ),
        (
            "node0: ip link set enp1s0 address 52:54:00:01:00:99",
            "node0: ip link set enp1s0 address 52:54:00:01:00:10",
            *("ina: MAC", "enp1s0 has 52:54:00:01:00:99: expected 52:54:00:01:00:10", "hosts.node0.ina.mac"),
        ),
        (
            "box: systemctl stop railweave-controller",
            "box: systemctl start railweave-controller",
            *("controller", "10.0.0.9:9600: UNAVAILABLE", "start `railweave controller` there"),
        ),
    ],
    [
        (
            "node1: ip link set enp2s0 down",
            "node1: ip link set enp2s0 up",
            *("tcp: link", "enp2s0 has no carrier", "look at the cable"),
        ),
        (
            "node0: ip address del 10.3.0.10/24 dev enp3s0; ip address add 10.3.0.77/24 dev enp3s0",
            "node0: ip address del 10.3.0.77/24 dev enp3s0; ip address add 10.3.0.10/24 dev enp3s0",
            *("rdma: address", "enp3s0 has 10.3.0.77: expected 10.3.0.10 of 10.3.0.0/24", "10.3.0.10/24 dev"),
        ),
        (
            "node0: nft add table ip t; nft add chain ip t o '{ type filter hook output priority 0; }'; "
            "nft add rule ip t o udp dport 5257 drop",
            "node0: nft delete table ip t",
            *("ina: sum in the network", "Operation not permitted", "firewalls"),
        ),
    ],
    [
        (
            "node0: ip link set enp2s0 mtu 9000",
            "node0: ip link set enp2s0 mtu 1500",
            *("tcp: to node1, MTU", "10.2.0.11 gets no packets of 9000 bytes", "an MTU of 9000 or more"),
        ),
        (
            "node1: ip address del 10.3.0.11/24 dev enp3s0",
            "node1: ip address add 10.3.0.11/24 dev enp3s0",
            *("rdma: to node1", "10.3.0.11 does not answer pings", "run this on node1 as well"),
        ),
        (
            "node0: nft add table ip t; nft add chain ip t i '{ type filter hook input priority 0; }'; "
            "nft add rule ip t i udp sport 5257 drop",
            "node0: nft delete table ip t",
            *("ina: sum in the network", "no answer from 10.1.255.", "in the port that the file says"),
        ),
    ],
    [
        (
            "node0: ip address del 10.2.0.10/24 dev enp2s0",
            "node0: ip address add 10.2.0.10/24 dev enp2s0",
            *("tcp: interface", "no interface has 10.2.0.10", "correct hosts.node0.tcp"),
        ),
        (
            "box: ip link set p2 mtu 1400",
            "box: ip link set p2 mtu 1500",
            *("ina: to node1, MTU", "10.1.0.11 gets no packets of 1500 bytes", "give switches and node1"),
        ),
        (
            "node0: cd /etc/railweave; cp -p token kept; openssl rand -hex 32 > token",
            "node0: cd /etc/railweave; mv kept token",
            *("controller", "another one than the controller's", "copy the token's file"),
        ),
    ],
    [
        (
            "node0: ip route add 10.2.0.11/32 dev eno1",
            "node0: ip route del 10.2.0.11/32 dev eno1",
            *("tcp: to node1, route", "10.2.0.11 is reached over eno1: expected enp2s0", "`ip route get"),
        ),
        (
            "node0: ip address flush enp3s0; ip address add 10.9.0.1/16 dev enp3s0; "
            "ip address add 10.3.0.10/24 dev enp3s0",
            "node0: ip address del 10.9.0.1/16 dev enp3s0",
            *("rdma: address", "enp3s0 has 10.9.0.1, then 10.3.0.10", "ip address del 10.9.0.1"),
        ),
        (
            "box: systemctl stop railweave-switch",
            "box: systemctl start railweave-switch",
            *("switch box, P4Runtime", "switch box at 10.0.0.9:9559", "start the switch"),
        ),
    ],
    [
        (
            f"box: {other_controller(f'python -c {LATE!r}')}",
            f"box: {OTHER_CONTROLLER_ENDS}",
            *("clock", r"\+3(?:6\.9|7\.[01]) s from the controller's", "chrony or ntpd"),
        ),
    ],
    [
        (
            "node0: cd /etc/railweave; cp -p own.pem kept.pem; cp -p own.key kept.key; openssl req -x509 "
            "-nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=me -keyout own.key -out own.pem",
            "node0: cd /etc/railweave; mv kept.pem own.pem; mv kept.key own.key",
            *("controller", "it ends the connection on seeing our certificate", "make certificates"),
        ),
    ],
]


@pytest.mark.parametrize("broken", ROUNDS, ids=lambda broken: ", ".join(name for _, _, name, _, _ in broken))
def test_what_is_broken_is_named_with_a_remedy(
    cluster_machines: Mapping[str, Machine], broken: list[tuple[str, str, str, str, str]]
) -> None:
    def carry_out_all(orders: list[str]) -> None:
        for order in orders:
            machine, _, script = order.partition(": ")
            cluster_machines[machine].run(script)

    carry_out_all([order for order, *_ in broken])
    found = findings(cluster_machines["node0"])
    carry_out_all([order for _, order, *_ in broken])
    wait_until_well(cluster_machines["node0"])
    for _, _, name, detail, remedy in broken:
        assert not found[name]["present"]
        assert re.search(detail, f"{found[name]['detail']}: expected {found[name]['expected']}")
        assert remedy in found[name]["remedy"]
    wrong = [finding for finding in found.values() if not finding["present"]]
    assert all(finding["expected"] and finding["remedy"] for finding in wrong)
    names = {name for _, _, name, _, _ in broken}
    later = {"ina: to node1"} if "switch box, P4Runtime" in names else set()  # the switch is down
    assert {finding["name"] for finding in wrong} <= names | later


def test_slots_that_another_job_holds_are_missed(cluster_machines: Mapping[str, Machine]) -> None:
    cluster_machines["box"].run(other_controller("railweave", "--slots 8192"))
    try:
        with cluster_machines["node1"].start(f"exec python -c '{HOLDER}'") as holder:
            assert holder.stdout is not None
            assert "holds" in holder.stdout.readline()
            found = findings(cluster_machines["node0"])
            assert holder.poll() is None
            holder.communicate()  # it ends when its standard input ends
    finally:
        cluster_machines["box"].run(OTHER_CONTROLLER_ENDS)
        wait_until_well(cluster_machines["node0"])
    slots = found["switch box, slots"]
    assert not slots["present"]
    assert slots["detail"] == "0 of 8192 free"
    assert "railweave why" in slots["remedy"]
    assert slots["expected"]
    assert "no 8192 slots in a row are free" in found["ina: sum in the network"]["detail"]


def test_the_exit_status_says_whether_all_is_well(cluster_machines: Mapping[str, Machine]) -> None:
    assert "can take part in the cluster" in cluster_machines["node0"].run(
        f"railweave doctor --cluster {FILE}"
    )
    said = cluster_machines["node0"].run("railweave doctor --cluster /etc/railweave/none.yaml", code=2)
    assert "none.yaml: " in said
    assert "Traceback" not in said
