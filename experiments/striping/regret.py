# SPDX-License-Identifier: Apache-2.0
"""The cost of learning: mixed calls in virtual time, compared with each call's best split in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import cycle, islice

from railweave._native.collectives import Collective, DType, ReduceOp, item_size
from railweave.experiments.claims import Claim
from railweave.experiments.figures import run_by
from railweave.experiments.random_calls import draw
from railweave.experiments.records import Record
from railweave.experiments.striping.virtual import LinkRail, StripedJob, What
from railweave.hosts.arrays import NAMES
from railweave.hosts.capabilities import OPS, obstacle, size_bytes

MIB = 1 << 20
HALF = 500  # number of calls in each half of a run
REGRET = {"first": 0.10, "next": 0.03}  # most, by half
WORST_CALL = 1.25  # most, of a call of 1 MiB or more
LATENCY_S = {"ina": 100e-6, "tcp": 150e-6, "rdma": 200e-6}  # of a message from host to host
USED = {"ina": 0.97, "tcp": 0.93, "rdma": 0.85}  # reached share of the rate that the link allows
SURVEY_S = 300e-6  # time of a survey outside of the rail
LATENESS_S = 0.002
BUCKETS = (4, MIB, *[25 * MIB] * 6, 12 * MIB, 4)  # bytes of a step of a transformer with 170 M parameters

# The last item is the number of elements: of one shard if the collective has shards.
Kind = tuple[Collective, DType, ReduceOp, int]


@dataclass(frozen=True)
class World:
    """A network, and the disturbance of its rails by each other."""

    kinds: tuple[str, ...]
    hosts: int = 4
    rate_bps: int = 50_000_000
    noise: float = 0.1
    crowded: float = 1.0
    delay_s: float = 0.0  # of the links between two hosts

    def rails(self) -> list[LinkRail]:
        """Return the rails of the network."""
        return [
            LinkRail(
                LATENCY_S[kind] + self.delay_s,
                self.rate_bps / 8,
                kind,
                crowded=self.crowded,
                hosts=self.hosts,
                used=USED[kind],
            )
            for kind in self.kinds
        ]

    def job(self, seed: int = 1) -> StripedJob:
        """Return a new job in this network that has learnt nothing. Two ranks represent all ranks."""
        return StripedJob(
            self.rails(),
            ranks=2,
            hosts=self.hosts,
            survey_s=SURVEY_S,
            rate_bps=self.rate_bps,
            noise=self.noise,
            lateness_s=LATENESS_S,
            seed=seed,
        )


def soak(world: World, seed: int = 1) -> Iterator[Kind]:
    """Return the calls of a soak."""
    collectives = {each.name.lower(): each for each in Collective}
    dtypes = {name: each for each, name in NAMES.items()}
    for number in range(1 << 30):
        drawn = draw(seed, number, world.hosts, 1 << 22)
        yield collectives[drawn.collective], dtypes[drawn.dtype], OPS[drawn.op], drawn.count


def transformer(world: World, seed: int = 1) -> Iterator[Kind]:
    """Return the calls of training: gradients in buckets, and two numbers."""
    for size in cycle(BUCKETS):
        yield Collective.ALL_REDUCE, DType.FLOAT32, ReduceOp.SUM, size // 4


WORKLOADS: Mapping[str, Callable[[World, int], Iterator[Kind]]] = {"soak": soak, "transformer": transformer}


def best_s(rails: Sequence[LinkRail], hosts: int, kind: Kind) -> float:
    """Return the time of the best rail, or of the best split, of a call, from the real costs of the rails."""
    collective, dtype, op, count = kind
    what = (collective, dtype)
    able = [rail for rail in rails if obstacle(rail.kind, dtype, op, collective) is None]
    size = size_bytes(collective, count, item_size(dtype), hosts)
    low, high = 0.0, min(rail.time_s(size, False, what) for rail in able)
    for _ in range(24):
        middle = (low + high) / 2
        fits = sum(_most(rail, middle, size, what) for rail in able) >= size
        low, high = (low, middle) if fits else (middle, high)
    return high


def _most(rail: LinkRail, time_s: float, size: int, what: What) -> int:
    """Return the most bytes that a rail carries within a time while other rails carry bytes, too."""
    low, high = 0, size
    while high - low > 1024:
        middle = (low + high) // 2
        low, high = (middle, high) if rail.time_s(middle, True, what) <= time_s else (low, middle)
    return low


WORLDS = (
    World(("ina", "tcp")),
    World(("ina", "rdma")),
    World(("tcp", "rdma")),
    World(("tcp", "tcp")),
    World(("ina", "tcp", "rdma")),
    World(("ina", "tcp", "rdma"), hosts=6),
    World(("ina", "tcp", "rdma"), noise=0.3, crowded=1.15),
    World(("ina", "tcp", "rdma"), rate_bps=1_000_000_000, crowded=2.5),
    World(("ina", "tcp"), delay_s=0.001),
)


@dataclass(frozen=True)
class Regret:
    """The extra time of calls over the best split in hindsight, relative to the time of this split."""

    world: World
    workload: str
    halves: tuple[float, float]
    worst: float  # greatest ratio of times for a call of 1 MiB or more
    surveys: int

    @property
    def name(self) -> str:
        """The name for readers."""
        world = self.world
        network = f"{'+'.join(world.kinds)}, {world.hosts} hosts, {world.rate_bps / 1e6:g} Mbit/s"
        return (
            f"{self.workload} on {network}, noise {world.noise:.0%}, "
            f"disturbed {world.crowded - 1:.0%}, delay {world.delay_s * 1e3:g} ms"
        )

    @property
    def record(self) -> Record:
        """The results in the form of an experiment's record."""
        return run_by(self.name, {}, 0, contender="virtual", extra=asdict(self))

    @property
    def claims(self) -> list[Claim]:
        """The claims on the cost of learning."""
        halves = [(f"The regret of the {half} {HALF} calls is x", most) for half, most in REGRET.items()]
        stated = [(text, f"halves.{place}", most) for place, (text, most) in enumerate(halves)]
        stated.append(("The slowest call of 1 MiB or more takes x times the best time", "worst", WORST_CALL))
        return [
            Claim(
                f"{self.name}: {field}",
                f"{self.name}: {text}.",
                {"what": "extra", "scenario": self.name, "field": field},
                (0, most),
                "",
            )
            for text, field, most in stated
        ]

    def __str__(self) -> str:
        """Return the name and the results, in two lines."""
        first, second = self.halves
        return (
            f"# regret: {self.name}\n{first:.1%} in the first {HALF} calls, {second:.1%} in the next {HALF}; "
            f"worst call from 1 MiB: {self.worst:.2f} x best; {self.surveys} surveys"
        )


def replay(world: World, workload: str, seed: int = 1) -> Regret:
    """Make the calls of a workload, and return their regret."""
    job = world.job(seed)
    best = cache(partial(best_s, world.rails(), world.hosts))
    halves: list[float] = []
    worst = 0.0
    calls = WORKLOADS[workload](world, seed)
    for _ in range(2):
        spent_s = least_s = 0.0
        surveys = job.surveys
        for kind in islice(calls, HALF):
            collective, dtype, op, count = kind
            taken = job.call(count, dtype, op, collective)
            call_s = best(kind)
            spent_s += taken.time_s
            least_s += call_s
            if size_bytes(collective, count, item_size(dtype), world.hosts) >= MIB:
                worst = max(worst, taken.time_s / call_s)
        # A survey takes about as long as the least call.
        spent_s += (job.surveys - surveys) * (SURVEY_S + job.rails[0].a_s)
        halves.append(spent_s / least_s - 1)
    return Regret(world, workload, (halves[0], halves[1]), worst, job.surveys)


def run() -> Iterator[Regret]:
    """Make the calls of each workload in each network, and yield the regrets."""
    for world in WORLDS:
        for workload in WORKLOADS:
            yield replay(world, workload)
