# SPDX-License-Identifier: Apache-2.0
"""Report the trees of jobs, and the reasons why they did not get more."""

from __future__ import annotations

import time
from collections.abc import Iterable

from railweave.controller.jobs import Group, RailTree
from railweave.controller.placement import ring_members
from railweave.controller.summing import message
from railweave.v1 import controller_pb2 as pb


def report(groups: Iterable[Group], job: str) -> pb.ExplainResponse:
    """Report on one running job, or on all ('')."""
    jobs = [_job(group) for group in groups if job in ("", group.job)]
    return pb.ExplainResponse(jobs=jobs, time_s=time.time())


def _job(group: Group) -> pb.JobReport:
    request = group.requests[min(group.requests)] if group.requests else None
    ranks = [
        pb.RankReport(rank=rank, decisions=lease.decisions) for rank, lease in sorted(group.leases.items())
    ]
    rails = [_rail(group, rail) for rail in request.rails] if request else []
    return pb.JobReport(job=group.job, size=group.size, rails=rails, ranks=ranks)


def _rail(group: Group, rail: pb.RailOffer) -> pb.RailReport:
    trees = [_tree(tree) for tree in group.trees if tree.rail == rail.name]
    refusal = group.refusals.get(rail.name, "")
    ring = ring_members(group.rings.get(rail.name, ()))
    sums = group.sums.get(rail.name)
    return pb.RailReport(
        rail=rail.name,
        kind=rail.kind,
        plane=rail.plane,
        refusal=refusal,
        trees=trees,
        ring=ring,
        sums=message(rail.name, sums) if sums else None,
        adders=sums.rings if sums else (),
        algorithm=group.algorithms.get(rail.name),
    )


def _tree(tree: RailTree) -> pb.TreeReport:
    report = pb.TreeReport(tree=tree.index, slots=tree.slots, moves=tree.moves)
    if tree.pause:
        report.paused = tree.pause.reason
    if tree.placed:
        report.group = tree.placed.group
        report.root = tree.placed.tree.root.switch
        report.switches.extend(node.switch for node in tree.placed.tree.nodes)
    return report
