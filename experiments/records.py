# SPDX-License-Identifier: Apache-2.0
"""The results of runs. Each run has its own folder, with its metadata and a flat table of its timed calls."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

from railweave.errors import Unavailable, of_file
from railweave.experiments import statistics
from railweave.experiments.cpu import CpuTimes
from railweave.experiments.errors import OptionError
from railweave.outputs import LATEST, new_folder, numbers
from railweave.topologies.errors import TopologyError
from railweave.topologies.values import build, plain

VERSION = 3  # version 2 was a file of lines, `records.jsonl`
OLD_FILE, OLD_HEAD = "records.jsonl", b'{"version": '
RECORD, CALLS = "record.json", "calls.csv"
# The columns of CALLS. A call has a row for each rail, or one row if its contender does not report rails.
COLUMNS = ("size_bytes", "call", "start_s", "time_us", "rail", "bytes")
OK, FAILED, HUNG, SKIPPED = "ok", "failed", "hung", "skipped"
LINKS, CPU, UNKNOWN = "links", "cpu", "unknown"


@dataclass(frozen=True)
class Sample:
    """All timed calls of one size in one run.

    A call's time is from the last rank's start to the last rank's end.
    """

    size_bytes: int
    times_us: tuple[float, ...] = ()
    verified: int = 0  # results compared element by element, over all ranks, in or after the timed calls
    wrong: int = 0  # number of wrong elements
    cpu_s: float = 0.0  # processor time of all ranks during the timed calls
    memory_bytes: int = 0  # resident memory after the timed calls, of the rank that uses most
    hot: bool = True  # nothing was left to learn before the first timed call
    starts_s: tuple[float, ...] = ()  # start of the last rank, by call, in seconds after the first timed call
    carried: tuple[
        Mapping[str, int], ...
    ] = ()  # bytes by rail, by call, on rank 0; only if they were counted

    @property
    def median_us(self) -> float:
        """Return the median time of a call."""
        return statistics.median(self.times_us)


@dataclass(frozen=True)
class RankResult:
    """The results of one rank. The worker writes them as JSON; contenders with other programs do the same."""

    samples: tuple[Sample, ...]  # of this rank: starts_s are of CLOCK_MONOTONIC
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
        try:
            return build(cls, json.loads(path.read_text()), str(path))
        except (ValueError, TopologyError) as error:
            raise of_file(OptionError, path, error, "the result of a rank") from None


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

    def rows(self, sample: Sample) -> Iterator[tuple[Any, ...]]:
        """Yield the timed calls of one size, by rail, in the order of COLUMNS."""
        shares = self.shares.get(str(sample.size_bytes)) or {"": 1.0}
        mean = {rail: round(share * sample.size_bytes) for rail, share in shares.items()}
        for call, time_us in enumerate(sample.times_us):
            start_s = sample.starts_s[call] if sample.starts_s else None
            for rail, size in ((sample.carried[call] or {"": 0}) if sample.carried else mean).items():
                yield sample.size_bytes, call, start_s, time_us, rail, size


class Records:
    """The folders of runs, 1, 2 and so on. They are never changed, so that others may read them at any time.

    RECORD is written last: a folder without it is a run that did not end.
    """

    def __init__(self, path: Path) -> None:
        """Take the path of the folder. Nothing is read or written yet."""
        self.path = path

    def folders(self) -> list[Path]:
        """Return the folders of the runs that have ended, in order. Raise OptionError for old records."""
        require_current(self.path.with_name(OLD_FILE))
        folders = [self.path / str(number) for number in numbers(self.path)]
        return [folder for folder in folders if (folder / RECORD).exists()]

    def read(self, key: str = "") -> list[Record]:
        """Return all records, or the records of one scenario. Raise OptionError for other versions."""
        found = map(read, self.folders())
        return [record for record in found if key in ("", record.scenario)]

    def of(self, key: str) -> list[Record]:
        """Return the counted records of a scenario, without its control runs."""
        return [record for record in counted(self.read(key)) if not record.control]

    def ours(self) -> bool:
        """Whether there is such a folder, without other files."""
        names = {LATEST, *map(str, numbers(self.path))}
        return self.path.is_dir() and all(each.name in names for each in self.path.iterdir())

    def append(self, record: Record, folder: Path | None = None) -> None:
        """Add a record completely, or not at all, in the folder of its run. The default is a new folder.

        Raises Unavailable if the disk has no room.
        """
        folder = folder or new_folder(self.path)
        calls, final = folder / CALLS, folder / RECORD
        temporary = final.with_suffix(".new")
        rows = [list(record.rows(sample)) for sample in record.samples]
        metadata = {"version": VERSION, **plain(record)}
        metadata["samples"] = [
            plain(replace(sample, times_us=(), starts_s=(), carried=()))
            | {"rows": len(of_sample), "by_call": bool(sample.carried)}
            for sample, of_sample in zip(record.samples, rows, strict=True)
        ]
        try:
            with calls.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([COLUMNS, *itertools.chain(*rows)])
                _sync(file)
            with temporary.open("w") as file:
                json.dump(metadata, file, indent=1)
                _sync(file)
            temporary.rename(final)
        except OSError as error:
            raise Unavailable(
                f"{folder}: {error.strerror}; earlier runs are kept",
                "room for a record",
                "make room, and run the command again",
            ) from error


@functools.cache  # runs are never changed
def read(folder: Path) -> Record:
    """Return the record of a run that has ended. Raise OptionError if it is not of this version."""
    path = folder / RECORD
    try:
        metadata = json.loads(path.read_text())
        if (version := metadata["version"]) == VERSION:
            with (folder / CALLS).open(newline="") as file:
                rows = itertools.islice(csv.reader(file), 1, None)
                metadata["samples"] = [_with_calls(sample, rows) for sample in metadata["samples"]]
            return build(Record, metadata, str(path))
    except (OSError, ValueError, LookupError, TypeError, TopologyError) as error:
        raise of_file(OptionError, path, error, "a record that railweave has written") from None
    raise other_version(path, version)


def _with_calls(sample: dict[str, Any], rows: Iterator[list[str]]) -> dict[str, Any]:
    """Return the values of a sample with those of its calls, which are the next rows of a table."""
    of_sample = list(itertools.islice(rows, count := sample.pop("rows")))
    if len(of_sample) < count:
        raise ValueError(f"{CALLS} has too few rows")
    calls = [list(of_call) for _, of_call in itertools.groupby(of_sample, key=itemgetter(1))]
    if sample.pop("by_call"):
        sample["carried"] = [{rail: int(size) for *_, rail, size in call if rail} for call in calls]
    starts_s, times_us = zip(*(call[0][2:4] for call in calls), strict=True) if calls else ((), ())
    sample["times_us"] = list(map(float, times_us))
    sample["starts_s"] = [float(start_s) for start_s in starts_s if start_s]
    return sample


def other_version(path: Path, version: object) -> OptionError:
    """Return the error of a record that another railweave has written."""
    return OptionError(
        f"{path}: a record of version {version}",
        f"version {VERSION}",
        "name another folder, or remove this one",
    )


def require_current(old: Path) -> None:
    """Raise OptionError if a file holds records as older versions have written them."""
    if old.is_file() and old.read_bytes().startswith(OLD_HEAD):
        raise other_version(old, "2 or older")


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


def _sync(file: TextIO) -> None:
    """Write a file's content to the disk, which may turn out to be full."""
    file.flush()
    os.fsync(file.fileno())
