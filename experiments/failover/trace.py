# SPDX-License-Identifier: Apache-2.0
"""The reports of the ranks of a series: calls, the slices that each rail carried, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from railweave.experiments.failover.worker import MICRO


@dataclass(frozen=True)
class Slice:
    """The part of a call that one rail has carried. Times are of CLOCK_MONOTONIC, in seconds."""

    rail: str
    start: float
    end: float
    bytes: int


@dataclass(frozen=True)
class Call:
    """A call that has completed."""

    begin: float
    end: float
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class RankError:
    """An error that ended a rank's communicator. The time is of CLOCK_MONOTONIC."""

    at: float
    kind: str  # the exception's class
    lost: int | None  # the rank that PeerLost names
    text: str


@dataclass
class RankTrace:
    """The reports of one rank."""

    joined: float = 0.0
    calls: list[Call] = field(default_factory=list)
    forgotten: int = 0  # number of earlier calls that are no longer in `calls`
    errors: list[RankError] = field(default_factory=list)
    wrong: int = 0  # number of wrong elements
    computed: tuple[float, float] = (0.0, 0.0)  # begin and end of its last computation
    rails: tuple[str, ...] = ()
    failures: dict[str, int] = field(default_factory=dict)  # number of exclusions, by rail
    unused: dict[str, str] = field(default_factory=dict)  # reason, by unused rail, at the rank's end

    @property
    def progress(self) -> float:
        """The end of the last call."""
        return self.calls[-1].end if self.calls else 0.0

    def take(self, message: Mapping[str, Any]) -> None:
        """Add a message of the rank."""
        match message["event"]:
            case "joined":
                self.joined = message["at"]
            case "rails":
                self.rails = tuple(message["names"])
            case "calls":
                self.calls += calls_of(message, self.rails)
                self.wrong += message["wrong"]
                self.failures = dict(zip(self.rails, message["failures"], strict=True))
            case "computed":
                self.computed = message["begin"], message["end"]
            case "unused":
                self.unused = message["why"]
            case "error":
                names = (field.name for field in fields(RankError))
                self.errors.append(RankError(**{name: message[name] for name in names}))

    def forget(self, before: float) -> None:
        """Drop the calls that ended before an instant."""
        kept = [call for call in self.calls if call.end >= before]
        self.forgotten += len(self.calls) - len(kept)
        self.calls = kept

    def first_error(self, since: float) -> RankError | None:
        """Return the first error since an instant."""
        return next((error for error in self.errors if error.at >= since), None)

    def first_use(self, rail: str, since: float) -> float | None:
        """Return the end of the first slice on a rail that began after an instant, or None."""
        ends = (
            piece.end
            for call in self.calls
            if call.end > since
            for piece in call.slices
            if piece.rail == rail and piece.start > since
        )
        return next(ends, None)


def calls_of(message: Mapping[str, Any], rails: tuple[str, ...]) -> list[Call]:
    """Return the calls in a worker's message `calls`."""
    since = message["since"]

    def instant(micro: int) -> float:
        return float(since + micro / MICRO)

    return [
        Call(
            instant(begin),
            instant(end),
            tuple(Slice(rails[rail], instant(s), instant(e), size) for rail, s, e, size in slices),
        )
        for begin, end, slices in message["calls"]
    ]
