# SPDX-License-Identifier: Apache-2.0
"""The steps of docs/howto/cluster.md, from machines with cables to a training."""

from __future__ import annotations

import re
from pathlib import Path

from system.cluster_document import TRAIN, blocks, cabled, carry_out


def test_the_document_leads_from_cables_to_a_training(tmp_path: Path) -> None:
    with cabled(tmp_path) as machines:
        said = {}
        for block in blocks():
            said[block.title] = carry_out(block, machines)
        checks = said["See each plane work"]
        assert "no rank can run here" in " ".join(checks["box"].split())
        for host in ("node0", "node1"):
            assert "can take part in the cluster" in checks[host]
            assert "256 numbers came back" in checks[host]
        told = re.compile(
            r"accuracy 0\.9\d+, parameters (\w+), over ina (\S+) MB, tcp (\S+) MB, rdma (\S+) MB"
        )
        ends = [match.groups() for text in said[TRAIN].values() if (match := told.search(text))]
        assert len(ends) == 2, said[TRAIN]
        assert ends[0][0] == ends[1][0]
        assert all(float(carried) > 0 for _, *rails in ends for carried in rails), ends
