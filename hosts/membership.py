# SPDX-License-Identifier: Apache-2.0
"""The interface between a communicator and the controller's client. Tests replace the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from railweave._native.agent import Stall
from railweave.access import Access
from railweave.hosts.events import Decision, Event, RailOffer
from railweave.hosts.rails import Members


class Membership(Members, Protocol):
    """A place among the ranks of a job, from `bootstrap.join` or a test's replacement."""

    def report_position(self, group: int, position: int) -> None:
        """Answer GroupPaused."""

    def report_stall(self, stall: Stall) -> None:
        """Tell the controller why a group delivers no results."""

    def leave(self) -> None:
        """Leave the job."""


class Join(Protocol):
    """The signature of `bootstrap.join`, which makes a membership."""

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
        """Join and wait for the other ranks."""


def controller_join(access: Access) -> Join:
    """Return the join function of the controller's client. The import is late, because gRPC loads slowly."""
    from railweave.hosts import bootstrap  # noqa: PLC0415

    return partial(bootstrap.join, access=access)
