# SPDX-License-Identifier: Apache-2.0
"""What has been measured, what is being asked of the other ranks, and when an answer comes into force."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from railweave.hosts.striping import surveys
from railweave.hosts.striping.surveys import Item, Lanes, Times

PENDING = 256  # slices at most that wait to be asked for
ATTEMPTS = 3  # surveys that ask for a slice's time before it is given up
NEVER = 1 << 62


class SliceRecord(Protocol):
    """One slice as it went on this rank."""

    @property
    def op_index(self) -> int:
        """Index of its call."""

    @property
    def rail(self) -> int:
        """The rail's index in the agent."""

    @property
    def start_ns(self) -> int:
        """When the rail was free for it."""

    @property
    def end_ns(self) -> int:
        """When it was done."""

    @property
    def bytes(self) -> int:
        """Of the whole tensor."""


@dataclass
class Survey:
    """A survey under way."""

    in_force: int  # from the call of this index on
    items: tuple[Item, ...]
    opens: bool  # the first one, which compares what the ranks start from
    result: list[int] | None = None


class Agreement:
    """The slices that are measured, from call to survey to what all ranks know."""

    def __init__(self, opening: Lanes | None) -> None:
        """Begin with the input of the first survey, if one is to compare what the ranks start from."""
        self._opening = opening
        self._surveys: dict[int, Survey] = {}  # by index
        self._pending: deque[Item] = deque()
        self._last = -1  # index of the last call that is measured
        self._times: dict[int, dict[int, Times]] = {}  # here, by op index and rail
        self.latest = 0  # index of the latest survey

    @property
    def horizon(self) -> int:
        """Return the index of the first call before which a survey comes into force."""
        return min((survey.in_force for survey in self._surveys.values()), default=NEVER)

    def measure(self, items: Iterable[Item]) -> None:
        """Note the slices of a call that has been submitted."""
        for item in items:
            self._pending.append(item)
            self._last = item.op_index
        while len(self._pending) > PENDING:
            self._pending.popleft()

    def observe(self, records: Iterable[SliceRecord]) -> None:
        """Take slices that have ended on this rank."""
        for record in records:
            by_rail = self._times.setdefault(record.op_index, {})
            start_ns, _, size = by_rail.get(record.rail, (record.start_ns, 0, 0))
            by_rail[record.rail] = start_ns, record.end_ns, size + record.bytes

    def forget(self) -> None:
        """Ask for nothing that has been submitted so far."""
        self._pending.clear()

    def asked(self) -> tuple[Item, ...]:
        """Return what the next survey asks for: not the call right before it, which is still under way."""
        if self._opening is not None:
            return ()
        return tuple([item for item in self._pending if item.op_index != self._last][: surveys.MOST])

    def survey_input(self) -> Lanes:
        """Return what this rank gives to the next survey."""
        if self._opening is not None:
            return self._opening
        return surveys.encode(self.asked(), self._times)

    def submitted(self, op_index: int, items: tuple[Item, ...], lag: int) -> None:
        """Note a survey that has been submitted."""
        for _ in items:
            self._pending.popleft()
        opens = self._opening is not None
        self._opening = None
        self._surveys[op_index] = Survey(op_index + (1 if opens else lag), items, opens)
        self.latest = op_index
        waiting = [*self._pending, *(item for survey in self._surveys.values() for item in survey.items)]
        oldest = min((item.survey for item in waiting), default=op_index)
        for index in [index for index in self._times if index < oldest]:
            del self._times[index]

    def wanted(self, op_index: int) -> int | None:
        """Return the index of a survey whose result is needed to plan a call, and has not been taken."""
        for index, survey in self._surveys.items():
            if survey.in_force <= op_index and survey.result is None:
                return index
        return None

    def take(self, op_index: int, result: Lanes) -> None:
        """Take the result of the survey at this index."""
        self._surveys[op_index].result = [int(lane) for lane in result]

    def pop_due(self, op_index: int) -> Survey | None:
        """Return the survey that came into force first, up to this call, and forget it."""
        due = [(survey.in_force, index) for index, survey in self._surveys.items()]
        in_force, index = min(due, default=(NEVER, -1))
        if in_force > op_index:
            return None
        if self._surveys[index].result is None:
            raise RuntimeError(f"the result of the survey at #{index} has not been taken")
        return self._surveys.pop(index)

    def times(self, survey: Survey, counted_from: int) -> list[tuple[Item, float]]:
        """Return the agreed times of a survey, but for calls before `counted_from`.

        What no rank could tell is asked again.
        """
        known: list[tuple[Item, float]] = []
        again: list[Item] = []
        for item, time_s in surveys.decode(survey.items, survey.result or ()):
            if item.op_index < counted_from:
                continue
            if time_s is not None:
                known.append((item, time_s))
            elif item.attempts + 1 < ATTEMPTS:
                again.append(replace(item, attempts=item.attempts + 1))
        self._pending.extendleft(reversed(again))
        return known
