# SPDX-License-Identifier: Apache-2.0
"""An experiment as a value: a network, its disturbances, the contenders, and their workload."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from railweave.errors import of_file
from railweave.experiments import contenders as kinds
from railweave.experiments.contenders import Contender
from railweave.experiments.errors import OptionError
from railweave.experiments.problem import COLLECTIVES, DTYPES, ITEM, OPS, SHARDED
from railweave.p4src.config import CONFIG
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import DEFAULT_MTU, Topology
from railweave.topologies.named import COUNTS, named
from railweave.topologies.planes import DEFAULT_RATE_BPS
from railweave.topologies.values import build, plain

LAST, EACH = "last", "each"
MOST_NOISE = 0.9
MIN_SLOTS = CONFIG["GROUP_STEP"] // 2


@dataclass(frozen=True)
class Workload:
    """The calls of every contender in a run: for each size warm-up calls, then timed calls."""

    sizes: tuple[int, ...] = ()  # bytes of the whole tensor
    collective: str = "all_reduce"  # if it names two collectives at once, each has a tensor of that size
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0  # of a broadcast
    warmup: int = 5  # least number of warm-up calls; there are more until times are steady
    iterations: int = 20  # timed calls per size
    seconds: float = 0.0  # time limit for the timed calls of a size; 0: no limit
    messages: tuple[
        int, ...
    ] = ()  # in place of sizes: bytes of the tensors of one step of training, in order
    model: str = ""  # the model that has these messages
    compute_s: float = 0.0  # computation time of a step, before its messages
    in_place: bool = False  # input and output share memory
    density: float = 1.0  # share of each rank's blocks of 1 KiB that are not zero
    verify: str = ""  # calls whose results are checked: LAST or EACH; by default EACH under faults and loss


@dataclass(frozen=True)
class Scenario:
    """All parameters of a measurement, except the machine."""

    name: str
    contenders: tuple[Contender, ...]
    workload: Workload
    topology: str = "planes"  # as on the command line
    hosts: int = 4  # of the topology `planes`
    rails: tuple[str, ...] = ("ina", "tcp")  # kinds of rails; each rail has a plane
    rates: tuple[int, ...] = (DEFAULT_RATE_BPS,)  # bit/s of links: one rate, or one per plane; 0: unshaped
    mtu: int = DEFAULT_MTU  # of every link
    slots: int = 0  # of a job on a P4 plane; 0: the controller's default
    impair: str = ""  # of P4 planes' links, as for railweave switch --impair
    loss: Mapping[str, float] = field(default_factory=dict)  # by plane: probability that a frame is lost
    noise: float = 0.0  # share of each core's time taken away
    faults: str = ""  # as for railweave run --fault; times count from the first timed call of a run
    seed: int = 1
    repetitions: int = 3  # number of rounds, in each of which every contender runs once
    switch: str = "embedded"
    control: bool = False  # add a round at half the rate, which shows whether links were the bottleneck

    @cached_property
    def network(self) -> Topology:
        """The topology. Raises TopologyError if no such topology exists."""
        return named(self.topology, hosts=self.hosts, rails=self.rails, rates=self.rates, mtu=self.mtu)

    @cached_property
    def key(self) -> str:
        """Identify the measurement. The key does not depend on the number of repetitions."""
        values = {name: value for name, value in self.as_json().items() if name != "repetitions"}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def verify(self) -> str:
        """The calls whose results are checked, LAST or EACH."""
        return self.workload.verify or (EACH if self.faults or self.impair or self.loss else LAST)

    def planes_of(self, contender: Contender) -> tuple[str, ...]:
        """Return the names of the planes that a contender uses."""
        return contender.rails or tuple(plane.name for plane in self.network.planes)

    def as_json(self) -> dict[str, Any]:
        """Return the scenario as JSON values, without fields that have their default value."""
        values: dict[str, Any] = plain(self)
        return values

    def as_toml(self) -> str:
        """Return the scenario as TOML, with the keys of `as_json`."""
        values = self.as_json()
        tables = {name: values.pop(name) for name in ("workload", "loss") if name in values}
        contenders = values.pop("contenders")
        lines = list(_toml_lines(values))
        for name, table in tables.items():
            lines += ["", f"[{name}]", *_toml_lines(table)]
        for contender in contenders:
            lines += ["", "[[contenders]]", *_toml_lines(contender)]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_json(cls, values: Any) -> Scenario:
        """Read JSON values. Raise OptionError for a mistake; the message names its place."""
        try:
            scenario = build(cls, values, "scenario")
        except TopologyError as error:
            raise OptionError(str(error)) from None
        scenario.check()
        return scenario

    @classmethod
    def load(cls, path: Path) -> Scenario:
        """Read a JSON file, or TOML with the same keys from a file with the suffix `.toml`."""
        toml = path.suffix == ".toml"
        try:
            text = path.read_text(encoding="utf-8")
            return cls.from_json(tomllib.loads(text) if toml else json.loads(text))
        except (OSError, ValueError) as error:  # OptionError and errors of both readers are ValueErrors
            raise of_file(OptionError, path, error, f"a scenario in {'TOML' if toml else 'JSON'}") from None

    def check(self) -> None:
        """Raise OptionError if values are invalid, or do not fit together."""
        from railweave.experiments.fault_script import parse  # noqa: PLC0415 - needs a lab's modules

        try:
            network = self.network
            parse(self.faults, network)
        except TopologyError as error:
            raise OptionError(str(error)) from None
        self._require(len(network.hosts) >= 2, "number of hosts", len(network.hosts), "at least 2")
        self._require(0 <= self.noise <= MOST_NOISE, "noise", self.noise, f"0 to {MOST_NOISE}")
        shaped = self.topology.partition(":")[0] in COUNTS and all(plane.rate_bps for plane in network.planes)
        self._require(not self.control or shaped, "control", True, "False: some rates cannot be halved")
        valid = self.slots == 0 or (self.slots >= MIN_SLOTS and self.slots.bit_count() == 1)
        self._require(valid, "slots", self.slots, f"a power of two from {MIN_SLOTS}, or 0 for the default")
        self._require(self.repetitions >= 1, "repetitions", self.repetitions, "at least 1")
        self._check_workload(len(network.hosts))
        self._check_contenders([plane.name for plane in network.planes])

    def _check_contenders(self, planes: list[str]) -> None:
        names = [contender.name for contender in self.contenders]
        self._require(bool(names), "contenders", names, "at least one")
        self._require(len(set(names)) == len(names), "contenders", names, "different names")
        for contender in self.contenders:
            kinds.require_kind(contender.kind, kinds.KINDS)
            for rail in contender.rails:
                self._among(f"rail of contender {contender.name!r}", rail, planes)
            implementation = contender.implementation()
            who = f"with contender {contender.name!r}"
            self._among(f"collective {who}", self.workload.collective, implementation.collectives)
            self._among(f"op {who}", self.workload.op, implementation.ops)
            self._among(f"dtype {who}", self.workload.dtype, implementation.dtypes)

    def _check_workload(self, hosts: int) -> None:
        work = self.workload
        self._among("collective", work.collective, COLLECTIVES)
        self._among("dtype", work.dtype, DTYPES)
        self._among("op", work.op, OPS)
        self._require(bool(work.sizes) != bool(work.messages), "workload", work.sizes, "sizes or messages")
        self._require(0 < work.density <= 1, "density", work.density, "above 0, up to 1")
        for size in (*work.sizes, *work.messages):
            self._require(size >= ITEM and size % ITEM == 0, "size", size, f"a multiple of {ITEM} bytes")
        least = ITEM * hosts if work.collective in SHARDED else ITEM
        smallest = min((*work.sizes, *work.messages))
        self._require(smallest >= least, "smallest size", smallest, f"at least {least}, an element per shard")
        self._require(0 <= work.root < hosts, "root", work.root, f"a rank, 0 to {hosts - 1}")
        self._among("verify", self.verify, (LAST, EACH))
        self._require(work.iterations >= 1, "iterations", work.iterations, "at least 1")
        for name in ("warmup", "seconds", "compute_s"):
            self._require(getattr(work, name) >= 0, name, getattr(work, name), "at least 0")

    @staticmethod
    def _among(what: str, value: str, known: tuple[str, ...] | list[str]) -> None:
        if value not in known:
            raise OptionError(f"{what} {value!r}", f"one of {', '.join(known)}", f"correct the {what}")

    @staticmethod
    def _require(holds: bool, what: str, value: Any, expected: str) -> None:
        if not holds:
            raise OptionError(f"{what} is {value!r}", expected, f"correct the {what}")


def _toml_lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        bare = key.isascii() and key.isidentifier()
        yield f"{key if bare else json.dumps(key)} = {_toml(value)}"


def _toml(value: Any) -> str:
    """Return a JSON value in TOML. Only mappings are written differently."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(_toml_lines(value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
