# SPDX-License-Identifier: Apache-2.0
"""The native code's failures as Python's exceptions."""

from __future__ import annotations

from railweave._native.agent import Failure, FailureKind
from railweave.hosts.errors import CollectiveMismatch, PeerLost, RailDown, RailweaveError


def raise_failure(failure: Failure | None) -> None:
    """Raise what a failure means; nothing if there is none."""
    if failure is None:
        return
    where = f" (rail {failure.rail!r})" if failure.rail else ""
    match failure.kind:
        case FailureKind.PEER_LOST:
            raise PeerLost(failure.rank, failure.message + where)
        case FailureKind.MISMATCH:
            raise CollectiveMismatch(
                failure.message + where,
                "the same call on all ranks",
                "make all ranks call the same collectives in the same order",
            )
        case FailureKind.RAIL_DOWN:
            raise RailDown(failure.rail, failure.message)
    raise RailweaveError(
        failure.message + where, "a call that ends on all ranks", "read the output of all ranks"
    )
