# SPDX-License-Identifier: Apache-2.0
"""What is compared: kinds of all-reduce on the same hosts and links, one module per kind.

A module `contenders/KIND.py` has a class `Kind` derived from `Implementation`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from railweave.experiments import limits
from railweave.topologies.model import Plane

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab

KINDS = ("railweave", "gloo", "ring", "mptcp", "openmpi", "ps", "hierarchical", "atp")

Array: TypeAlias = NDArray[np.float32] | NDArray[np.int32]


@dataclass(frozen=True)
class Contender:
    """A contender as a value of a scenario."""

    name: str  # as shown; one of its kind per scenario
    kind: str  # of KINDS
    rails: tuple[str, ...] = ()  # the planes it uses, by name; none: all
    options: Mapping[str, Any] = field(default_factory=dict)  # of its kind; railweave: shares, by rail

    def implementation(self) -> Implementation:
        """Return what runs it."""
        module = importlib.import_module(f"railweave.experiments.contenders.{self.kind}")
        made: Implementation = module.Kind(self)
        return made


@dataclass(frozen=True)
class Slice:
    """A part of a call that a rail has carried on this rank; times of CLOCK_MONOTONIC."""

    rail: str
    bytes: int  # of the tensor
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Job:
    """One run of a contender, as every rank reads it."""

    contender: Contender
    size: int  # ranks
    planes: tuple[str, ...]  # those it uses
    addresses: Mapping[str, tuple[str, ...]]  # IPv4 of every rank, by plane
    out: str  # folder; rank r writes its `RankResult` to rank-r.json there
    timeout_s: float  # of joining, and of every call
    workload: Mapping[str, Any]  # a scenario's Workload, as JSON
    seed: int = 0
    series: bool = False  # also write when calls began, and what rails carried when
    rates_bps: Mapping[str, int] = field(default_factory=dict)  # of every link, by plane; 0 is unshaped
    services: Mapping[str, int] = field(default_factory=dict)  # processes of switches and controller

    def result_of(self, rank: int) -> Path:
        """Return the file of a rank's result."""
        return Path(self.out) / f"rank-{rank}.json"


class Endpoint(ABC):
    """A contender on one rank, in the rank's process. Calls are collective."""

    @abstractmethod
    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Reduce over all ranks; the result goes to `out`, which begins as a copy of `given`."""

    def reduce_scatter(self, given: Array, out: Array, op: str) -> None:
        """Reduce over all ranks; `out` gets this rank's shard."""
        raise NotImplementedError

    def all_gather(self, given: Array, out: Array) -> None:
        """Gather every rank's shard in `out`."""
        raise NotImplementedError

    def broadcast(self, out: Array, root: int) -> None:
        """Send the root's `out` to all."""
        raise NotImplementedError

    def all_gather_and_reduce_scatter(
        self, shard: Array, gathered: Array, tensor: Array, own: Array, op: str
    ) -> None:
        """Do both at once: gather every rank's `shard`; reduce `tensor`, of which `own` is this rank's."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        token = np.zeros(1, np.int32)
        self.all_reduce(token, token, "sum")

    def hot(self, size_bytes: int, collective: str, dtype: str, op: str) -> bool:
        """Whether nothing is left to learn for such calls."""
        return True

    def slices(self) -> Sequence[Slice]:
        """Return what rails have carried since the last call of this; nothing where that is unknown."""
        return ()

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        """Return this rank's counts by rail, for the record."""
        return {}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the software that is measured."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Leave."""


class Implementation(ABC):
    """How a kind of contender runs. Made in the runner's process and in every rank's."""

    collectives: tuple[str, ...] = ("all_reduce",)
    ops: tuple[str, ...] = ("sum",)

    def __init__(self, contender: Contender) -> None:
        """Take the value that it runs."""
        self.contender = contender

    def obstacle(self) -> str:
        """Return why this machine cannot run it, and what to install; empty if it can."""
        return ""

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """Return what a plane's links allow, in bits of the tensor per second; here, a ring over TCP."""
        return limits.over_hosts(plane, collective)

    def error_bound(self, ranks: int) -> float:
        """Return the greatest error of a sum of float32; 0 if sums that float32 can hold are exact."""
        return 0.0

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Prepare the lab for one run, and undo that; what it yields, filled until its end, is the extra."""
        yield {}

    def command(self, job_file: Path, rank: int) -> list[str]:
        """Return the command of one rank; none where another rank's command starts it.

        Whatever runs writes the ranks' results as the worker does.
        """
        return [sys.executable, "-m", "railweave.experiments.worker", str(job_file), str(rank)]

    @abstractmethod
    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the job in the rank's process; raises RailweaveError or OSError."""
