# SPDX-License-Identifier: Apache-2.0
"""Contenders: kinds of all-reduce that are compared on the same hosts and links, one module per kind.

A module `contenders/KIND.py` has a class `Kind` derived from `Implementation`. In-network algorithms share
`contenders/algorithm.py`.
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

from railweave import sdk
from railweave.experiments import limits
from railweave.experiments.errors import OptionError
from railweave.experiments.problem import DTYPES
from railweave.hosts import reports
from railweave.topologies.model import Plane

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab

KINDS = ("railweave", "gloo", "ring", "mptcp", "openmpi", "ps", "hierarchical")

Array: TypeAlias = NDArray[np.float32] | NDArray[np.int32]


@dataclass(frozen=True)
class Contender:
    """A contender as a value of a scenario."""

    name: str  # shown to users; unique in the scenario
    kind: str  # one of KINDS, the name of an in-network algorithm, or the path of its folder
    rails: tuple[str, ...] = ()  # names of the planes that it uses; empty: all planes
    options: Mapping[str, Any] = field(default_factory=dict)  # of its kind; railweave: shares, by rail

    def implementation(self) -> Implementation:
        """Return the implementation that runs the contender."""
        name = self.kind if self.kind in KINDS else "algorithm"
        module = importlib.import_module(f"railweave.experiments.contenders.{name}")
        made: Implementation = module.Kind(self)
        return made


def require_kind(kind: str, known: Sequence[str]) -> None:
    """Raise OptionError unless this is a known kind, or an in-network algorithm."""
    if kind in known:
        return
    try:
        sdk.find(kind)
    except sdk.AlgorithmError as error:
        if "/" in kind:
            raise OptionError(str(error)) from None
        names = ", ".join((*known, *sdk.names()))
        raise OptionError(
            f"contender {kind!r}", f"one of {names}, or the path of an algorithm's folder", "correct the name"
        ) from None


@dataclass(frozen=True)
class Job:
    """One run of a contender, as every rank reads it."""

    contender: Contender
    size: int  # ranks
    planes: tuple[str, ...]  # names of the planes that the job uses
    addresses: Mapping[str, tuple[str, ...]]  # IPv4 of every rank, by plane
    out: str  # folder; rank r writes its `RankResult` to rank-r.json there
    timeout_s: float  # of joining, and of every call
    workload: Mapping[str, Any]  # a scenario's Workload, as JSON
    seed: int = 0
    series: bool = False  # also write the start of each call, and the bytes of each rail over time
    rates_bps: Mapping[str, int] = field(default_factory=dict)  # of every link, by plane; 0 is unshaped
    services: Mapping[str, int] = field(default_factory=dict)  # processes of switches and controller
    topology: str = ""  # file of the network

    def result_of(self, rank: int) -> Path:
        """Return the file of a rank's result."""
        return Path(self.out) / f"rank-{rank}.json"


class Endpoint(ABC):
    """A contender on one rank, in the rank's process. Calls are collective."""

    failed = False
    """Whether an error has ended this rank's calls. Then `close` must not wait for other ranks."""

    @abstractmethod
    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Reduce over all ranks. `out` is a copy of `given` before the call, and gets the result."""

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
        """Gather every rank's `shard` and reduce `tensor`, both at once; `own` gets this rank's shard."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Wait until all ranks have called the barrier."""
        token = np.zeros(1, np.int32)
        self.all_reduce(token, token, "sum")

    def hot(self, size_bytes: int, collective: str, dtype: str, op: str) -> bool:
        """Whether nothing is left to learn for such calls."""
        return True

    def slices(self) -> Sequence[reports.Record]:
        """Return the slices since the last call of `slices`; empty if the contender does not know them."""
        return ()

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        """Return this rank's counts by rail, for the record."""
        return {}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the software that is measured."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Leave the job."""


class Implementation(ABC):
    """Runs a kind of contender. The runner's process and every rank's process make one."""

    collectives: tuple[str, ...] = ("all_reduce",)
    ops: tuple[str, ...] = ("sum",)
    dtypes: tuple[str, ...] = DTYPES

    def __init__(self, contender: Contender) -> None:
        """Take the contender that it runs."""
        self.contender = contender

    def obstacle(self) -> str:
        """Return why this machine cannot run the contender and the remedy; empty if it can."""
        return ""

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """Return the rate that a plane's links allow, in bits of the tensor per second.

        The default is the limit of a ring over TCP.
        """
        return limits.over_hosts(plane, collective)

    def error_bound(self, ranks: int) -> float:
        """Return the greatest error of a sum of float32; 0 if sums that float32 can hold are exact."""
        return 0.0

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Prepare the lab for one run, and undo the preparation afterwards.

        The yielded mapping becomes the field `extra` of the record. It may be filled until the run ends.
        """
        yield {}

    def command(self, job_file: Path, rank: int) -> list[str]:
        """Return the command of one rank; empty if the command of another rank starts this rank.

        The command writes the ranks' results in the same form as the worker.
        """
        return [sys.executable, "-m", "railweave.experiments.worker", str(job_file), str(rank)]

    @abstractmethod
    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the job in the rank's process. Raises RailweaveError or OSError."""
