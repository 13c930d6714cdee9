# SPDX-License-Identifier: Apache-2.0
"""The order in which to replace the switches of a fabric by switches that aggregate.

The order depends on the time that a mix of jobs saves. The time of a job is the cost that hosts assume for
its rail before they have measured it (`prior_lines`). A ring of L racks and single ranks takes 2(L-1) steps.
It moves 2(L-1)/L of the tensor over the slowest link. Links inside racks may carry more. The model assumes
that jobs run one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from railweave.controller import composition
from railweave.controller.trees import graph
from railweave.experiments import units
from railweave.experiments.errors import OptionError
from railweave.hosts.limits import payload_fraction
from railweave.hosts.striping.priors import StripedRail, prior_lines
from railweave.topologies.model import Nic, Plane
from railweave.topologies.planes import P4RUNTIME_PORT

_JOB = re.compile(r"(\d+)x(\w+)(?:@h(\d+))?", re.IGNORECASE)


@dataclass(frozen=True)
class Job:
    """Ranks on neighbouring hosts that add up tensors."""

    name: str  # as it was written
    size_bytes: int
    ranks: dict[int, Nic]


@dataclass(frozen=True)
class Stage:
    """The fabric after an upgrade; the first stage is the fabric as it is."""

    switch: str  # the upgraded switch; empty in the first stage
    members: tuple[int, ...]  # number of members of each job's ring; 1: one tree
    times_s: tuple[float, ...]  # time of a call, by job

    @property
    def total_s(self) -> float:
        """Return the time of one call of each job."""
        return sum(self.times_s)


def parse_jobs(text: str, plane: Plane) -> list[Job]:
    """Return the jobs of `16x4M,4x1M@h5`: ranks, bytes of the tensor, and the first host (h1 by default)."""
    hosts = [nic.host for nic in plane.nics]
    jobs = []
    for part in text.split(","):
        match = _JOB.fullmatch(part.strip())
        if match is None:
            raise OptionError(
                f"job {part!r}", "RANKSxBYTES or RANKSxBYTES@HOST, such as 16x4M@h1", "correct --jobs"
            )
        count, first = int(match[1]), int(match[3] or 1)
        if count < 2:
            raise OptionError(f"job {part!r}: {count} ranks", "at least 2", "correct --jobs")
        if first < 1 or first + count - 1 > len(hosts):
            raise OptionError(
                f"job {part!r}: hosts h{first} to h{first + count - 1}",
                f"hosts of h1 to h{len(hosts)}",
                "correct --jobs",
            )
        ranks = dict(enumerate(plane.nics[first - 1 :][:count]))
        jobs.append(Job(part.strip(), units.parse_size(match[2]), ranks))
    return jobs


def upgraded(plane: Plane, names: Collection[str]) -> Plane:
    """Return the plane with P4 switches in place of the bridges with these names."""
    network = plane.network.split(".")[1]
    return replace(
        plane,
        switches=tuple(
            replace(switch, p4runtime=f"10.255.{network}.{switch.device_id}:{P4RUNTIME_PORT}")
            if switch.name in names and not switch.p4runtime
            else switch
            for switch in plane.switches
        ),
    )


def racks(plane: Plane, job: Job) -> list[int]:
    """Return the sizes of the racks that the controller makes members of a job's ring, in ranks."""
    sizes: list[int] = []
    for rack in composition.racks(plane, job.ranks):
        if composition.fits(len(rack), sizes):
            sizes.append(len(rack))
    return sizes


def members(plane: Plane, job: Job) -> int:
    """Return the number of racks and single ranks in a job's ring; 1: one tree."""
    sizes = racks(plane, job)
    return len(sizes) + len(job.ranks) - sum(sizes)


def time_s(plane: Plane, job: Job) -> float:
    """Return the predicted time of a call of a job.

    In a rack of k ranks, a host's link carries the tensor to the switch and back, and 1/k of the ring's
    traffic. If k is 2, this is more than the traffic of the whole ring.
    """
    rates = [plane.rate_bps]
    if len({nic.switch for nic in job.ranks.values()}) > 1:
        rates += [rate for *_, rate in graph(plane).edges.data("rate_bps")]
    around = members(plane, job)
    rail = StripedRail(plane.name, 0, plane.kind, min(rates), members=around if around > 1 else 0)
    ring_s = prior_lines([rail], len(job.ranks), "all_reduce")[0].time_s(job.size_bytes)
    if around == 1:
        return ring_s
    tensor_s = 8 * job.size_bytes / plane.rate_bps
    ring = 2 * (around - 1) / around / payload_fraction("tcp")
    in_racks = [tensor_s * (1 / payload_fraction("ina") + ring / size) for size in racks(plane, job)]
    return max([ring_s, *in_racks])


def plan(plane: Plane, jobs: Sequence[Job]) -> list[Stage]:
    """Return the fabric as it is, and then after each upgrade, the most useful one first.

    A candidate for the next upgrade is one switch, or the set of all switches with hosts of one job. The
    candidate that saves most time per switch wins. The most useful switch of a set is upgraded first. Sets
    are needed because the last rack of a job may save more time than its other racks together. Switches that
    save nothing come last, in the order of the plane.
    """
    if not plane.rate_bps:
        raise OptionError(
            "the links of the fabric have no rate", "rates, from which times are predicted", "give --rate"
        )
    done: list[str] = []
    left = [switch.name for switch in plane.switches if not switch.p4runtime]
    stages = [_stage(plane, jobs, "")]
    while left:
        groups: list[tuple[str, ...]] = [(name,) for name in left]
        for job in jobs:
            if behind := dict.fromkeys(nic.switch for nic in job.ranks.values() if nic.switch in left):
                groups.append((*behind,))
        now = stages[-1].total_s

        def gain(group: tuple[str, ...], now: float = now) -> float:
            after = _stage(upgraded(plane, [*done, *group]), jobs, "").total_s
            return (now - after) / len(group)

        best = max(groups, key=gain)
        first = max(best, key=lambda name: gain((name,)))
        done.append(first)
        left.remove(first)
        stages.append(_stage(upgraded(plane, done), jobs, first))
    return stages


def _stage(plane: Plane, jobs: Sequence[Job], switch: str) -> Stage:
    return Stage(
        switch,
        tuple(members(plane, job) for job in jobs),
        tuple(time_s(plane, job) for job in jobs),
    )
