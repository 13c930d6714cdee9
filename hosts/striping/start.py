# SPDX-License-Identifier: Apache-2.0
"""Makes the planner that a communicator's options ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from railweave.hosts.decisions import Ledger, Verdict
from railweave.hosts.striping import saved
from railweave.hosts.striping.planner import Planner
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.table import CostTable


def planner_for(
    rails: Sequence[StripedRail],
    world_size: int,
    ledger: Ledger,
    *,
    refused: Mapping[str, Verdict] | None = None,
    fixed: bool = False,
    deterministic: bool = False,
    costs: str = "",
) -> Planner:
    """Return a planner that starts from the costs in a file, if there is one and it is of such a job.

    InvalidOption if the file is bad. Costs of another number of hosts or of other rails are not used: the
    planner's note says so.
    """
    job = saved.dump(CostTable(rails, world_size), rails, world_size)
    found, note = _find(costs, job) if costs and not fixed and len(rails) > 1 else (None, "")
    planner = Planner(
        rails,
        world_size,
        ledger,
        refused=refused,
        fixed=fixed,
        deterministic=deterministic,
        costs=saved.load(found, rails) if found is not None else None,
        costs_digest=saved.digest(found) if found is not None else "",
        opening=bool(costs),
    )
    planner.note = note
    return planner


def _find(costs: str, like: saved.Job) -> tuple[saved.Job | None, str]:
    """Return the costs of jobs `like` this one in a file, if it is there; else a note that says why none."""
    path = Path(costs)
    if not path.exists():
        return None, f"{path} is not there yet: no costs are loaded"
    jobs = saved.read(path)
    for job in jobs:
        if saved.kind_of(job) == saved.kind_of(like):
            return job, ""
    known = "; ".join(saved.kind_text(job) for job in jobs) or "no jobs"
    return None, f"{path} has costs of other jobs ({known}), none of {saved.kind_text(like)}: none are used"
