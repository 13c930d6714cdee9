# SPDX-License-Identifier: Apache-2.0
"""The results of runs: the file `records.jsonl` with one line per run. Lines are added, but never changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from railweave.errors import Unavailable, of_file
from railweave.experiments import statistics
from railweave.experiments.cpu import CpuTimes
from railweave.experiments.errors import OptionError
from railweave.topologies.errors import TopologyError
from railweave.topologies.values import build, plain

T = TypeVar("T")

VERSION = 2  # in version 1, each call used new memory
HEAD = b'{"version": '  # every line begins with it
BLOCK_BYTES = 1 << 16
OK, FAILED, HUNG, SKIPPED = "ok", "failed", "hung", "skipped"
LINKS, CPU, UNKNOWN = "links", "cpu", "unknown"


@dataclass(frozen=True)
class Sample:
    """All timed calls of one size in one run.

    A call's time is from the last rank's start to the last rank's end.
    """

    size_bytes: int
    times_us: tuple[float, ...]
    rank_times_us: tuple[tuple[float, ...], ...]  # by rank
    verified: int  # results compared element by element, over all ranks, in or after the timed calls
    wrong: int  # number of wrong elements
    cpu_s: float = 0.0  # processor time of all ranks during the timed calls
    memory_bytes: int = 0  # resident memory after the timed calls, of the rank that uses most
    hot: bool = True  # nothing was left to learn before the first timed call
    starts_s: tuple[float, ...] = ()  # start of the last rank, by call, in seconds after the first timed call

    @property
    def median_us(self) -> float:
        """Return the median time of a call."""
        return statistics.median(self.times_us)


@dataclass(frozen=True)
class RankResult:
    """The results of one rank. The worker writes them as JSON; contenders with other programs do the same."""

    samples: tuple[Sample, ...]  # of this rank: rank_times_us is empty, starts_s are of CLOCK_MONOTONIC
    carried: Mapping[str, Mapping[str, int]] = field(
        default_factory=dict
    )  # by size, by rail: bytes of tensors
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by rail
    versions: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    cpu: CpuTimes = field(default_factory=CpuTimes)  # of the machine during the timed calls; rank 0's counts
    began_s: float = 0.0  # start of the preparation of the first timed call, CLOCK_MONOTONIC

    def write(self, path: Path) -> None:
        """Write the results atomically: the file is either absent or complete."""
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(plain(self)))
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> RankResult:
        """Read a rank's file. Raise OptionError if it is not such a file."""
        return _build(cls, path.read_text(), str(path))


@dataclass(frozen=True)
class Cpu:
    """The load of the machine's processors in a run. `idle` and `stolen` are shares of all cores' time."""

    wall_s: float
    idle: float
    stolen: float  # by other virtual machines
    run_queue: float  # mean number of runnable threads
    cores: int
    # Processor time per 10^9 bytes that a host has reduced, of one host's process and of all switches.
    cpu_s_per_gb: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One run of one contender: the results for all sizes, or the reason for missing results."""

    scenario: str  # key of the scenario
    name: str  # name of the scenario
    contender: str
    kind: str
    round: int
    status: str  # ok, failed, hung, skipped
    error: str = ""
    samples: tuple[Sample, ...] = ()
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by size in bytes, by rail
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by rail, over all ranks
    extra: Mapping[str, Any] = field(default_factory=dict)
    hot: bool = True  # all samples are hot
    rate_factor: float = 1.0  # 0.5: the control run
    cpu: Cpu | None = None
    bottleneck: str = UNKNOWN  # links, cpu, unknown
    configuration: Mapping[str, Any] = field(default_factory=dict)  # the scenario
    seed: int = 0
    command: str = ""
    commit: str = ""
    kernel: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    at: str = ""  # ISO 8601
    version: int = VERSION

    @property
    def control(self) -> bool:
        """Whether this is the control run at half the rate, which does not count as a measurement."""
        return self.rate_factor != 1.0

    @property
    def wrong(self) -> int:
        """Return the number of wrong elements."""
        return sum(sample.wrong for sample in self.samples)

    def sample(self, size_bytes: int) -> Sample | None:
        """Return the sample of a size."""
        return next((sample for sample in self.samples if sample.size_bytes == size_bytes), None)

    def line(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps({"version": self.version, **plain(self)}) + "\n"


class Records:
    """The file of records. Other processes may read it at any time."""

    def __init__(self, path: Path) -> None:
        """Take the path. Nothing is read or written yet."""
        self.path = path

    def read(self, key: str = "") -> list[Record]:
        """Return all records, or the records of one scenario. An unfinished last line is ignored.

        Raises OptionError for records of other versions.
        """
        try:
            with self.path.open() as lines:
                return [
                    _record(line, f"{self.path}, line {number}")
                    for number, line in enumerate(lines, 1)
                    if line.endswith("\n") and key in line
                ]
        except FileNotFoundError:
            return []

    def ours(self) -> bool:
        """Whether there is a file of records, or the beginning of one."""
        try:
            with self.path.open("rb") as file:
                return HEAD.startswith(file.read(len(HEAD)))
        except FileNotFoundError:
            return False

    def of(self, key: str) -> list[Record]:
        """Return the counted records of a scenario, without its control runs."""
        return [record for record in counted(self.read(key)) if record.scenario == key and not record.control]

    def append(self, record: Record) -> None:
        """Add a record completely, or not at all. Raise Unavailable if the disk has no room."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+", buffering=0) as file:
            whole = _whole(file)
            file.truncate(whole)
            try:
                _write(file.fileno(), record.line().encode())
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(whole)
                raise Unavailable(
                    f"{self.path}: {error.strerror}; earlier runs are kept",
                    "room for a record",
                    "make room, and run the command again",
                ) from error


def counted(records: Sequence[Record]) -> list[Record]:
    """Return the records without failed runs that were run again."""
    last = {_run_of(record): record for record in records}
    return [record for record in records if record.status == OK or last[_run_of(record)] is record]


def failures(records: Sequence[Record]) -> list[str]:
    """Return a line for each run that failed or hung and was not run again with success."""
    return [
        f"{record.name}: {record.contender}, round {record.round + 1}{', control run' * record.control} "
        f"{record.status}: {record.error}"
        for record in counted(records)
        if record.status in {FAILED, HUNG}
    ]


def _run_of(record: Record) -> tuple[str, str, int, float]:
    return record.scenario, record.contender, record.round, record.rate_factor


def _whole(file: BinaryIO) -> int:
    """Return the end of the last finished line, in bytes from the start of the file."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - BLOCK_BYTES)
        file.seek(start)
        place = file.read(end - start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        end = start
    return 0


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _record(line: str, where: str) -> Record:
    try:
        version = json.loads(line)["version"]
    except (ValueError, KeyError, TypeError):
        raise OptionError(
            f"{where} is no record",
            "lines that railweave has written",
            "name another folder, or remove this line",
        ) from None
    if version != VERSION:
        raise OptionError(
            f"{where}: a record of version {version}",
            f"version {VERSION}",
            "name another folder, or remove the file",
        )
    return _build(Record, line, where)


def _build(cls: type[T], text: str, where: str) -> T:
    try:
        return build(cls, json.loads(text), where)
    except (ValueError, TopologyError) as error:
        raise of_file(OptionError, where, error, "a line that railweave has written") from None
