# SPDX-License-Identifier: Apache-2.0
"""The command lines of a lab's daemons."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.services import controller_command
from railweave.topologies.planes import planes


@pytest.mark.parametrize(
    ("rails", "target", "lanes"),
    [(("ina",), "embedded", []), (("tcp", "ina"), "bmv2", ["64"]), (("tcp",), "bmv2", [])],
)
def test_the_controller_gives_a_target_no_more_lanes_than_it_can_answer_with(
    rails: tuple[str, ...], target: str, lanes: list[str]
) -> None:
    command = controller_command(LabOptions(Path("out"), target), planes(2, rails), "127.0.0.1:9600")
    assert [after for option, after in pairwise(command) if option == "--lanes"] == lanes
