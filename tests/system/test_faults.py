# SPDX-License-Identifier: Apache-2.0
"""The fault table, short: deaths in the middle of exact sums on a leaf-spine network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from system.command import Command

from railweave.experiments.faults.run import WENT_ON, WORKER_KILLED

FAULTS = (WORKER_KILLED, "switch restart", "spine killed")


def test_every_death_ends_as_expected_and_no_number_is_wrong(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    file = tmp_path / "faults.json"
    command = start(
        *("bench", "faults", "--topology", "leaf-spine:racks=2,hosts=1,spines=2", "--rate", "20M"),
        *("--faults", ",".join(FAULTS), "--trials", "1", "--json", str(file)),
    )
    code, told = command.end()
    assert code == 0, told
    result = json.loads(file.read_text())
    assert [row["fault"] for row in result["rows"]] == list(FAULTS)
    for row in result["rows"]:
        assert row["wrong"] == 0
        assert row["outcomes"] == {"PeerLost" if row["fault"] == WORKER_KILLED else WENT_ON: 1}
    assert result["rows"][0]["formed_s"]["max"] > 0


def test_a_fault_that_the_topology_cannot_have_is_refused(start: Callable[..., Command]) -> None:
    command = start("bench", "faults", "--topology", "planes", "--faults", "spine killed")
    code, told = command.end()
    assert code == 1
    assert "fault 'spine killed' needs two spines" in told
