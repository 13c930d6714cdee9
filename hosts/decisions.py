# SPDX-License-Identifier: Apache-2.0
"""Why a call went over some rails and not over others: remembered for what was really called, with counts."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railweave.hosts.events import Decision


class Reason(enum.StrEnum):
    """What keeps a rail from carrying a call; the values stand in reports and JSON."""

    REFUSED = "refused"  # the controller did not admit the rail: quota, slots, tree
    TREE_DOWN = "tree-down"  # the rail's plane has no aggregation tree now: its calls wait
    RAIL_DOWN = "rail-down"  # the rail has failed; the others carry its part until it is back
    DTYPE = "dtype"  # the rail cannot reduce this type
    OP = "op"  # the rail cannot do this operation
    SHARE_ZERO = "share-zero"  # the shares give the rail nothing
    PROBING = "probing"  # another rail or split was tried in its stead, to learn what it costs
    THRESHOLD = "threshold"  # the tensor is too small to be cut for it


@dataclass(frozen=True)
class Verdict:
    """What is decided of one rail: that it carries a part, or why not."""

    reason: Reason | None  # None: it is used
    text: str = ""


@dataclass
class Tally:
    """How often calls of one class went one way."""

    calls: int = 0


_Key = tuple[str, str, str, int, tuple[tuple[str, Verdict], ...]]


class Ledger:
    """All decisions of a communicator. Its size is bounded by the classes that there are, not by calls."""

    def __init__(self) -> None:
        """Begin without calls."""
        self._tallies: dict[_Key, Tally] = {}

    def tally(
        self, collective: str, dtype: str, op: str, size_bytes: int, verdicts: Mapping[str, Verdict]
    ) -> Tally:
        """Return the tally of calls that are decided like this; the caller counts."""
        key = (collective, dtype, op, size_class(size_bytes), tuple(verdicts.items()))
        return self._tallies.setdefault(key, Tally())

    def decisions(self) -> Sequence[Decision]:
        """Return one decision per rail and class that was called, in the order of the first calls.

        Any thread may ask, while calls of new classes are made.
        """
        tallies = list(self._tallies.items())  # in one step, as nothing of Python's runs in it
        return [
            Decision(
                rail=rail,
                collective=collective,
                dtype=dtype,
                op=op,
                size_class=size,
                used=verdict.reason is None,
                reason=verdict.reason or "",
                detail=verdict.text,
                calls=tally.calls,
            )
            for (collective, dtype, op, size, verdicts), tally in tallies
            for rail, verdict in verdicts
            if tally.calls
        ]


def size_class(size_bytes: int) -> int:
    """Return the least power of two that is not less than `size_bytes`, which is at least 1.

    >>> [size_class(size) for size in (1, 1000, 1024, 1025)]
    [1, 1024, 1024, 2048]
    """
    return 1 << (size_bytes - 1).bit_length()
