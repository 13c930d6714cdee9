# SPDX-License-Identifier: Apache-2.0
"""What a communicator asks of the controller's client, so that it can be tested without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from railweave._native.agent import Stall
from railweave.access import Access
from railweave.hosts.events import Decision, Event, RailOffer
from railweave.hosts.rails import Members


class Membership(Members, Protocol):
    """A place among the ranks of a job, from `bootstrap.join` or a stand-in."""

    def report_position(self, group: int, position: int) -> None:
        """Answer GroupPaused."""

    def report_stall(self, stall: Stall) -> None:
        """Say why a group brings no results."""

    def leave(self) -> None:
        """Give it up."""


class Join(Protocol):
    """How a membership comes about: `bootstrap.join`."""

    def __call__(
        self,
        controller: str,
        *,
        job: str,
        rank: int,
        size: int,
        rails: Sequence[RailOffer],
        deadline_s: float,
        on_event: Callable[[Event], None],
        decisions: Callable[[], Sequence[Decision]],
    ) -> Membership:
        """Join and wait for the others."""


def controller_join(access: Access) -> Join:
    """Return the controller's client; gRPC takes longer to import than everything else."""
    from railweave.hosts import bootstrap  # noqa: PLC0415

    return partial(bootstrap.join, access=access)
