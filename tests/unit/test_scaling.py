# SPDX-License-Identifier: Apache-2.0
"""Networks of `railweave bench scaling`."""

from __future__ import annotations

import pytest

from railweave.experiments.errors import OptionError
from railweave.experiments.scaling.run import topology
from railweave.topologies.named import named


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (2, "planes"),
        (31, "planes"),
        (32, "leaf-spine:racks=2,hosts=16,spines=1"),
        (63, "leaf-spine:racks=3,hosts=21,spines=1"),
    ],
)
def test_hosts_that_are_too_many_for_a_switch_are_in_racks(hosts: int, expected: str) -> None:
    assert topology(hosts) == expected


@pytest.mark.parametrize("hosts", [37, 964])
def test_numbers_that_no_racks_share_are_refused(hosts: int) -> None:
    with pytest.raises(OptionError, match=f"--hosts {hosts} does not divide into racks"):
        topology(hosts)


def test_racks_have_all_hosts() -> None:
    assert len(named(topology(32), rails=["ina"], rates=[0]).hosts) == 32
