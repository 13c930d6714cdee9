# SPDX-License-Identifier: Apache-2.0
"""The faults that benchmarks draw: of rails, of in-network trees and of ranks, in the words of `--fault`."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from railweave.experiments.errors import OptionError
from railweave.experiments.fault_script import fault_of
from railweave.experiments.supervisor import alongside
from railweave.topologies.lab.faults import Fault
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.model import Plane, Topology

RATE_CUT = 0.01  # of the plane's rate
LEAST_CUT_BPS = 100_000  # no link becomes slower
UNSHAPED_CUT_BPS = 10_000_000  # the new rate of an unshaped link
ANY_RAIL = "-"  # the rail of faults that hit a rank

INTERVAL_S = (1.0, 20.0)  # between two random faults of a rail
CONTROLLER_INTERVAL_S = (60.0, 240.0)
# The logarithm is uniform. Outages are far below a call's deadline, because all rails may be down at once.
OUTAGE_S = (0.03, 3.0)


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its words, its needs and its effect."""

    name: str
    words: str = ""  # of the fault, with names of `_places` for its place; empty: it hits a rank
    planes: tuple[str, ...] = ()  # kinds of planes that can have it; empty: all
    spines: int = 0  # number of spines that the fault needs
    tree: bool = False  # without names of faults, drawn only where a plane has links between switches
    fail_stop: bool = True  # the rail carries nothing until the repair
    detour: bool = False  # calls continue before the repair, even on one rail
    repeated: bool = False  # injected and repaired several times in a row

    def draw(self, plane: Plane, rng: random.Random) -> Fault:
        """Return a fault of this kind at a random place of a plane."""
        words = self.words.format(rail=plane.name, **_places(plane, rng))
        return fault_of(words, Topology(plane.name, (), (plane,)))

    def missing(self, plane: Plane) -> str:
        """Return the part that a plane lacks for this fault; empty if it lacks nothing."""
        if self.planes and plane.kind not in self.planes:
            return "an in-network rail" if self.tree else "a rail of RDMA"
        above = plane.levels()[1:]
        return "two spines" if len(above[0] if above else ()) < self.spines else ""


def _places(plane: Plane, rng: random.Random) -> dict[str, str]:
    leaves, *above = plane.levels()
    cut = max(round(plane.rate_bps * RATE_CUT), LEAST_CUT_BPS) if plane.rate_bps else UNSHAPED_CUT_BPS
    trunk = rng.choice(plane.trunks) if plane.trunks else None
    return {
        "host": rng.choice(plane.nics).host,
        "end": rng.choice(("switch", "host")),
        "switch": rng.choice(plane.switches).name,
        "leaf": rng.choice(leaves).name,
        "spine": rng.choice(above[0]).name if above else "",
        "uplink": f"{trunk.lower} {trunk.upper}" if trunk else "",
        "rate": str(cut),
    }


RDMA, INA = ("rdma", "netreduce"), ("ina",)
OF_RAILS = (
    Kind("host link down", "host link down {host} {rail}"),
    Kind("switch port down", "switch port down {host} {rail}"),
    Kind("loss one way", "loss to the {end} {host} {rail}"),
    Kind("loss both ways", "loss both ways {host} {rail}"),
    Kind("switch killed", "switch killed {switch}"),
    Kind("switch frozen", "switch frozen {switch}"),
    Kind("rate cut", "rate {rate} {rail} {host}", fail_stop=False),
    Kind("flapping", "flapping {host} {rail}", fail_stop=False),
)
QUEUE_PAIR_ENDED = Kind("queue pair ended", "queue pair ended {host} {rail}", RDMA, fail_stop=False)
# Hosts need their leaf, but another spine can replace a spine. Switches run without a controller.
LEAF_KILLED = Kind("leaf killed", "switch killed {leaf}", INA, tree=True)
UPPER = replace(LEAF_KILLED, fail_stop=False, detour=True)
CONTROLLER_RESTARTS = replace(UPPER, name="controller restarts", words="controller killed", repeated=True)
OF_TREES = (
    LEAF_KILLED,
    replace(UPPER, name="uplink cut", words="link cut {uplink}", spines=2),
    replace(UPPER, name="spine killed", words="switch killed {spine}", spines=2),
    CONTROLLER_RESTARTS,
)
RANK_COMPUTES, RANK_KILLED = (Kind(name, fail_stop=False) for name in ("rank computes", "rank killed"))
KINDS = {kind.name: kind for kind in (*OF_RAILS, QUEUE_PAIR_ENDED, *OF_TREES, RANK_COMPUTES, RANK_KILLED)}


def chosen(names: Sequence[str], planes: Sequence[Plane]) -> list[tuple[Kind, str]]:
    """Return the kinds with these names, each with a rail that it hits. Faults of ranks come last.

    Without names, return all kinds. Faults of trees then need a plane with trunks. Raises OptionError for an
    unknown name, and for a fault that fits no rail.
    """
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise OptionError(f"fault {unknown[0]!r}", f"one of {', '.join(KINDS)}", "correct the name")
    trunks = any(plane.trunks for plane in planes)
    wanted = [KINDS[name] for name in names] or [k for k in KINDS.values() if trunks or not k.tree]
    pairs = [
        (kind, plane.name) for kind in wanted if kind.words for plane in planes if not kind.missing(plane)
    ]
    for kind in wanted if names else ():
        if kind.words and kind not in dict(pairs):
            raise OptionError(
                f"fault {kind.name!r} fits none of the rails",
                " and ".join(sorted({kind.missing(plane) for plane in planes})),
                "add such a rail, or omit the fault",
            )
    return [*pairs, *((kind, ANY_RAIL) for kind in KINDS.values() if not kind.words and kind in wanted)]


async def inject_at_random(
    lab: Lab, seed: int, record: Callable[..., None], may_begin: Callable[[], Awaitable[object]]
) -> None:
    """Inject faults of rails and restart the controller until cancelled, then repair all remaining faults.

    `record` gets each fault and repair. No fault begins while `may_begin` waits.
    """

    async def again(kinds: Sequence[Kind], plane: Plane, rail: str, interval_s: tuple[float, float]) -> None:
        rng = random.Random(f"{seed}/{rail}")  # noqa: S311 - repeatable, not secret
        while True:
            await asyncio.sleep(rng.uniform(*interval_s))
            await may_begin()
            fault = rng.choice(kinds).draw(plane, rng)
            outage_s = math.exp(rng.uniform(*map(math.log, OUTAGE_S)))
            async with Injection(lab, fault) as injection:
                record("fault", rail=rail, fault=fault.name, where=fault.where, outage_s=round(outage_s, 3))
                await injection.inject()
                await asyncio.sleep(outage_s)
                await injection.repair()
                record("repaired", rail=rail, fault=fault.name)

    planes = lab.topology.planes
    rails = [again(OF_RAILS, plane, plane.name, INTERVAL_S) for plane in planes]
    await alongside(again([CONTROLLER_RESTARTS], planes[0], "", CONTROLLER_INTERVAL_S), *rails)
