# SPDX-License-Identifier: Apache-2.0
"""Join ranks without a controller, through the store of torch.distributed, which all ranks trust."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from railweave._native.agent import Stall
from railweave.hosts.errors import InvalidOption, JoinTimeout
from railweave.hosts.events import AlgorithmJob, InaGroup, RailOffer, Ring, Sums
from railweave.hosts.membership import Join
from railweave.protocol import PROTOCOL, SECRET_BYTES
from railweave.topologies.model import ALGORITHM

NO_CONTROLLER = "aggregation trees need a controller: set RAILWEAVE_CONTROLLER"
SPIN_US = 50.0


def default_spin_us() -> float:
    """Return the polling time of small calls: SPIN_US if this machine has enough cores for its ranks."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    cores = len(os.sched_getaffinity(0))
    return SPIN_US if ranks.isdigit() and 1 < int(ranks) <= 2 * cores else 0.0


def meet_in(store: Any) -> Join:
    """Return a function that joins the ranks of one job through a store for this job only."""

    def join(
        controller: str,
        *,
        job: str,
        rank: int,
        size: int,
        rails: Sequence[RailOffer],
        deadline_s: float,
        on_event: Callable[[Any], None],
        decisions: Callable[[], Any],
    ) -> Meeting:
        del controller, job, on_event, decisions
        return Meeting(store, rank, size, rails, deadline_s)

    return join


class Meeting:
    """A membership without a controller: it has no aggregation trees, and reports no lost ranks."""

    groups: Mapping[str, Sequence[InaGroup]] = {}
    rings: Mapping[str, Ring] = {}
    sums: Mapping[str, Sums] = {}
    algorithms: Mapping[str, AlgorithmJob] = {}

    def __init__(
        self, store: Any, rank: int, size: int, rails: Sequence[RailOffer], deadline_s: float
    ) -> None:
        """Wait for all ranks.

        Raises JoinTimeout, which names the missing ranks, and InvalidOption if ranks have different rails.
        """
        if rank == 0:
            store.set("secret", secrets.token_hex(SECRET_BYTES))  # before the rails, for which all ranks wait
        said = {"protocol": PROTOCOL, "rails": [asdict(rail) for rail in rails]}
        store.set(f"rails/{rank}", json.dumps(said))
        try:
            store.wait([f"rails/{other}" for other in range(size)], timedelta(seconds=deadline_s))
        except RuntimeError:  # kinds of store raise different subclasses
            missing = [str(other) for other in range(size) if not store.check([f"rails/{other}"])]
            raise JoinTimeout(
                f"not all ranks have joined within {deadline_s:g} s; missing: {', '.join(missing)}",
                f"{size} ranks",
                "start the missing ranks, or correct WORLD_SIZE",
            ) from None
        self.members = {other: _offers(other, store.get(f"rails/{other}")) for other in range(size)}
        self.secret = bytes.fromhex(store.get("secret").decode())
        self.refusals = {rail.name: NO_CONTROLLER for rail in rails if rail.kind in ("ina", ALGORITHM)}
        for other, offers in self.members.items():
            theirs, mine = (
                [(rail.name, rail.kind, rail.rate_bps) for rail in each] for each in (offers, rails)
            )
            if theirs != mine:
                raise InvalidOption(
                    f"rank {rank} has the rails {mine}, rank {other} has {theirs}",
                    "the same rails on all ranks",
                    "correct RAILWEAVE_RAILS on one of them",
                )

    def report_position(self, group: int, position: int) -> None:
        """Ignore the position: no group is ever paused."""

    def report_stall(self, stall: Stall) -> None:
        """Ignore the stall: there is no group that could stall."""

    def leave(self) -> None:
        """Do nothing: there is no membership to end."""


def _offers(rank: int, text: bytes) -> tuple[RailOffer, ...]:
    try:
        message = json.loads(text)
        if message["protocol"] != PROTOCOL:
            raise ValueError(f"version {message['protocol']} of the protocol instead of {PROTOCOL}")
        lists = ("queue_pairs", "sum_queue_pairs")
        return tuple(
            RailOffer(**{**rail, **{name: tuple(rail[name]) for name in lists}}) for rail in message["rails"]
        )
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidOption(
            f"rank {rank} describes its rails as {text[:200]!r} ({error})",
            "the same version of railweave on all ranks",
            "install the same version everywhere",
        ) from error
