# SPDX-License-Identifier: Apache-2.0
"""Convert failures of the native code to Python exceptions."""

from __future__ import annotations

from railweave._native.agent import Failure, FailureKind
from railweave.hosts.errors import CollectiveMismatch, PeerLost, RailDown, RailweaveError


def raise_failure(failure: Failure | None) -> None:
    """Raise the exception for a failure. None raises nothing."""
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
