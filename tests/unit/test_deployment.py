# SPDX-License-Identifier: Apache-2.0
"""The order in which to upgrade the switches of a fabric."""

from __future__ import annotations

import json
import re

import pytest
from commands import invoke

from railweave.experiments import deployment
from railweave.experiments.errors import OptionError
from railweave.hosts.limits import payload_fraction
from railweave.hosts.striping.priors import STEP_S
from railweave.topologies.clos import mixed_racks
from railweave.topologies.model import Plane

MIB = 1 << 20


def fabric(racks: int = 4, hosts: int = 4, ina: int = 0) -> Plane:
    (plane,) = mixed_racks(racks, hosts, ina, rails=("ina",), rates=10**7).planes
    return plane


def order(plane: Plane, jobs: str) -> list[str]:
    return [stage.switch for stage in deployment.plan(plane, deployment.parse_jobs(jobs, plane))[1:]]


def test_a_job_on_all_racks_gains_with_each() -> None:
    """A ring of L = r + (R - r)k members takes 2(L-1)(M/(L B) + alpha). A tree moves the tensor once."""
    plane = fabric()
    stages = deployment.plan(plane, deployment.parse_jobs("16x4M", plane))
    assert [stage.members for stage in stages] == [(16,), (13,), (10,), (7,), (4,), (1,)]
    goodput = 10**7 / 8 * payload_fraction("tcp")
    for stage in stages[:-1]:
        around = stage.members[0]
        expected = 2 * (around - 1) * (4 * MIB / (around * goodput) + STEP_S)
        assert stage.times_s == (pytest.approx(expected),)
    tree = 4 * MIB / (10**7 / 8 * payload_fraction("ina")) + 2 * STEP_S
    assert stages[-1].times_s == (pytest.approx(tree),)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ("4x2M,6x2M@h5,6x1M@h11", ["leaf1", "leaf2", "leaf4"]),
        ("4x4M@h9", ["leaf3"]),  # the rack of its ranks
        ("6x4M@h3", ["leaf2"]),  # the fuller rack
        ("4x1M,4x2M@h13", ["leaf4", "leaf1"]),  # the larger tensor
    ],
)
def test_the_rack_that_saves_most_is_first(jobs: str, expected: list[str]) -> None:
    assert order(fabric(), jobs)[: len(expected)] == expected


def test_a_jobs_last_rack_counts_for_its_first() -> None:
    """The second upgrade saves most for 8 ranks in two racks. So both come before a larger first saving."""
    plane = fabric(racks=3)
    jobs = deployment.parse_jobs("4x2M,8x4M@h5", plane)
    now, *each = (
        sum(deployment.time_s(deployment.upgraded(plane, names), job) for job in jobs)
        for names in ([], ["leaf1"], ["leaf2"], ["leaf3"])
    )
    assert min(each) == each[0] < now
    assert order(plane, "4x2M,8x4M@h5")[:2] == ["leaf2", "leaf3"]


def test_in_a_rack_of_two_ranks_links_carry_more_than_the_ring() -> None:
    plane = fabric()
    (job,) = deployment.parse_jobs("6x4M@h3", plane)  # two ranks below leaf1
    alone = deployment.time_s(deployment.upgraded(plane, ["leaf1"]), job)
    tensor_s = 8 * 4 * MIB / 10**7
    ring = 8 / 5 / payload_fraction("tcp")
    assert alone == pytest.approx(tensor_s * (1 / payload_fraction("ina") + ring / 2))
    assert alone > deployment.time_s(plane, job)


def test_what_aggregates_already_is_no_upgrade() -> None:
    assert order(fabric(ina=2), "16x4M") == ["leaf3", "leaf4", "spine1"]


def test_racks_without_columns_in_common_count_as_the_controller_places_them() -> None:
    (plane,) = mixed_racks(2, 9, 2, rails=("ina",), rates=10**7).planes
    (job,) = deployment.parse_jobs("16x4M", plane)  # 9 and 7 ranks: 63 columns
    assert deployment.members(plane, job) == 1 + 7


def test_the_slowest_trunk_limits_jobs_on_several_racks() -> None:
    (plane,) = mixed_racks(2, 2, 0, rails=("ina",), rates=10**7, uplink_bps=10**6).planes
    within, across = deployment.parse_jobs("2x1M,2x1M@h2", plane)
    assert deployment.time_s(plane, across) == pytest.approx(10 * deployment.time_s(plane, within), rel=1e-3)


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ("16", "job '16': expected RANKSxBYTES"),
        ("16x4M@3", "expected RANKSxBYTES or RANKSxBYTES@HOST"),
        ("1x4M", "1 ranks: expected at least 2"),
        ("8x4M@h10", "hosts h10 to h17: expected hosts of h1 to h16"),
        ("8x4M@h0", "hosts h0 to h7"),
        ("8x5", "size '5': expected a multiple of 4"),
    ],
)
def test_wrong_jobs_are_named(jobs: str, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        deployment.parse_jobs(jobs, fabric())


def test_the_command_shows_a_row_per_upgrade() -> None:
    command = "plan racks:racks=4,hosts=4,ina=0 --jobs 16x4M --rate 10M"
    done = invoke(f"{command} --json -")
    assert done.exit_code == 0
    stages = json.loads(done.stdout)["stages"]
    assert [stage["switch"] for stage in stages] == ["", "leaf1", "leaf2", "leaf3", "leaf4", "spine1"]
    assert stages[4]["members"] == [4]
    shown = invoke(command).stdout
    assert "4. leaf4" in shown
    assert "1.25" in shown
