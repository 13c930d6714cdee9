# SPDX-License-Identifier: Apache-2.0
"""The reports of the ranks of an endless job: calls, the slices that each rail carried, counts and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Slice:
    """The part of a call that one rail has carried. Times are of CLOCK_MONOTONIC, in seconds."""

    rail: str
    start: float
    end: float
    bytes: int
    repair: bool = False  # a TCP connection carried it in place of a failed rail


@dataclass(frozen=True)
class Call:
    """A call that has completed."""

    begin: float
    end: float
    slices: tuple[Slice, ...]
    key: tuple[int, int] = (0, 0)  # the rank's seed and the call's number, the same on all ranks
    waited_s: float = 0.0  # longest wait of a thread for a core


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
    seed: int = 0  # of the calls since it joined
    rails: dict[str, dict[str, float]] = field(default_factory=dict)  # counts by rail since it joined
    calls: list[Call] = field(default_factory=list)  # calls that are reported one by one
    done: int = 0  # number of all calls
    bytes: int = 0  # of their results
    longest_s: float = 0.0  # longest time between the ends of two calls
    rss_bytes: int = 0  # resident memory while no call was in flight
    errors: list[RankError] = field(default_factory=list)
    wrong: int = 0  # number of wrong elements
    stuck: bool = False  # no call has ended for a long time
    computed: tuple[float, float] = (0.0, 0.0)  # begin and end of its last computation
    unused: dict[str, str] = field(default_factory=dict)  # reason, by unused rail, at the rank's end

    @property
    def progress(self) -> float:
        """The end of the last call."""
        return self.calls[-1].end if self.calls else 0.0

    def take(self, message: Mapping[str, Any]) -> None:
        """Add a message of the rank."""
        match message["event"]:
            case "joined":
                self.joined, self.seed = message["at"], message["seed"]
                self.rails = {name: {} for name in message["rails"]}
            case "calls":
                for number, begin, end, waited_s, slices in message["calls"]:
                    key = (self.seed, number)
                    self.calls.append(Call(begin, end, tuple(Slice(*each) for each in slices), key, waited_s))
                self.done += message["done"]
                self.bytes += message["bytes"]
                self.longest_s = max(self.longest_s, message["longest_s"])
                self.rss_bytes, self.rails = message["rss_bytes"], message["rails"]
            case "wrong":
                self.wrong += message["elements"]
            case "stuck" | "unstuck" as event:
                self.stuck = event == "stuck"
            case "computed":
                self.computed = message["begin"], message["end"]
            case "left":
                self.unused = message["unused"]
            case "error":
                self.stuck = False
                self.errors.append(RankError(**{each.name: message[each.name] for each in fields(RankError)}))

    def failures(self, rail: str) -> int:
        """Return how often the ranks have excluded a rail since this rank joined."""
        return int(self.rails.get(rail, {}).get("failures", 0))

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


def wrong_elements(traces: Sequence[RankTrace]) -> int:
    """Return the number of wrong elements of all ranks."""
    return sum(trace.wrong for trace in traces)


def error_texts(traces: Sequence[RankTrace], since: float = 0.0) -> list[str]:
    """Return the errors of all ranks since an instant."""
    return [
        f"rank {rank}: {error.kind}: {error.text}"
        for rank, trace in enumerate(traces)
        for error in trace.errors
        if error.at >= since
    ]


def joined(traces: Sequence[RankTrace]) -> list[list[Call]]:
    """Return the calls that all ranks have reported, each by rank."""
    by_key = [{call.key: call for call in trace.calls} for trace in traces]
    keys = [call.key for call in (traces[0].calls if traces else ())]
    return [[calls[key] for calls in by_key] for key in keys if all(key in calls for calls in by_key)]


def longest_gap(ranks: Sequence[Sequence[Call]], begin: float, end: float) -> float:
    """Return the longest time between two ends of calls, on any rank, that lies in [begin, end] in part."""
    ends = [[call.end for call in calls] for calls in ranks if calls]
    pairs = (pair for each in ends for pair in pairwise([*each, max(each[-1], end)]))
    return max((after - last for last, after in pairs if after > begin and last < end), default=0.0)


def throughput(traces: Sequence[RankTrace], begin: float, end: float, rail: str = "") -> float:
    """Return the mean rate of the ranks in bit/s of tensor, of all rails or one."""
    return float(rates(traces, np.array([begin, end]), rail)[0]) if end > begin else 0.0


def rates(traces: Sequence[RankTrace], edges: NDArray[np.floating], rail: str = "") -> NDArray[np.float64]:
    """Return the throughput between each two neighbouring instants.

    A slice counts in proportion to the part of its time between the instants.
    """
    pieces = [piece for trace in traces for call in trace.calls for piece in call.slices]
    shown = [(piece.start, piece.end, piece.bytes) for piece in pieces if rail in ("", piece.rail)]
    start, stop, size = np.array(shown).reshape(-1, 3).T[..., np.newaxis]
    carried = size * np.clip((edges - start) / np.maximum(stop - start, 1e-9), 0, 1)  # until each edge
    return np.asarray(8 * np.diff(carried.sum(0)) / np.diff(edges) / len(traces))
