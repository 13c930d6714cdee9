# SPDX-License-Identifier: Apache-2.0
"""Record why calls used some rails and not others: one entry per class of calls, with its count."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railweave.hosts.events import Decision


class Reason(enum.StrEnum):
    """Name the reason why a rail does not carry a call. The values are used in reports and JSON.

    Attributes:
        REFUSED: The controller has refused the rail: quota, slots or tree.
        TREE_DOWN: The rail's plane has no aggregation tree now, so its calls wait.
        RAIL_DOWN: The rail has failed. The other rails carry its part until it works again.
        COLLECTIVE: The rail cannot carry this collective.
        DTYPE: The rail cannot reduce this data type.
        OP: The rail cannot do this operation.
        SHARE_ZERO: The given shares give the rail nothing.
        PROBING: Another rail or split was tried instead, to learn its cost.
        THRESHOLD: The tensor is too small to be split.
    """

    REFUSED = "refused"
    TREE_DOWN = "tree-down"
    RAIL_DOWN = "rail-down"
    COLLECTIVE = "collective"
    DTYPE = "dtype"
    OP = "op"
    SHARE_ZERO = "share-zero"
    PROBING = "probing"
    THRESHOLD = "threshold"


@dataclass(frozen=True)
class Verdict:
    """The decision about one rail: it carries a part of the call, or does not."""

    reason: Reason | None  # None: the rail is used
    text: str = ""


@dataclass
class Tally:
    """The number of calls of one class with one set of verdicts."""

    calls: int = 0


_Key = tuple[str, str, str, int, tuple[tuple[str, Verdict], ...]]


class Ledger:
    """All decisions of a communicator. Its size grows with the number of classes, not of calls."""

    def __init__(self) -> None:
        """Begin without calls."""
        self._tallies: dict[_Key, Tally] = {}

    def tally(
        self, collective: str, dtype: str, op: str, size_bytes: int, verdicts: Mapping[str, Verdict]
    ) -> Tally:
        """Return the tally of calls with these verdicts; the caller increments it."""
        key = (collective, dtype, op, size_class(size_bytes), tuple(verdicts.items()))
        return self._tallies.setdefault(key, Tally())

    def decisions(self) -> Sequence[Decision]:
        """Return one decision per rail and class that was called, in the order of the first calls.

        Any thread may call it, even while calls of new classes are made.
        """
        tallies = list(self._tallies.items())  # atomic: no Python code runs during the copy
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
