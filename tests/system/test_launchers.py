# SPDX-License-Identifier: Apache-2.0
"""A training on the machines of docs/howto/cluster.md, started by Slurm."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping

import pytest
from system.cluster_document import ONE_CLUSTER
from system.machines import Machine

pytestmark = ONE_CLUSTER
SLURM = """
ClusterName=rehearsal
SlurmctldHost=node0(10.0.0.10)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
StateSaveLocation=/etc/slurm/state
SlurmdSpoolDir=/etc/slurm/spool
SlurmctldPidFile=/etc/slurm/slurmctld.pid
SlurmdPidFile=/etc/slurm/slurmd.pid
NodeName=node0 NodeAddr=10.0.0.10
NodeName=node1 NodeAddr=10.0.0.11
PartitionName=all Nodes=ALL Default=YES
"""
START = f"""
mkdir -p /etc/slurm/state /etc/slurm/spool
cat > /etc/slurm/slurm.conf <<'END'
{SLURM}
END
"""


@pytest.mark.skipif(not shutil.which("slurmctld"), reason="Slurm is absent: no slurmctld on PATH")
def test_srun_says_who_the_ranks_are(cluster_machines: Mapping[str, Machine]) -> None:
    nodes = [cluster_machines["node0"], cluster_machines["node1"]]
    for node in nodes:
        node.run(START)
    nodes[0].run("slurmctld")
    for node in nodes:
        node.run("slurmd")
    said = nodes[0].run(
        "cd /tmp; srun --nodes 2 --ntasks-per-node 1 python /opt/railweave/examples/cluster/train.py",
        RAILWEAVE_CLUSTER="/etc/railweave/cluster.yaml",
    )
    ended = re.findall(r"rank (\d): accuracy (0\.\d+), parameters (\w+)", said)
    assert sorted(rank for rank, _, _ in ended) == ["0", "1"], said
    assert len({(accuracy, parameters) for _, accuracy, parameters in ended}) == 1
