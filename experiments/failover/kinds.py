# SPDX-License-Identifier: Apache-2.0
"""The faults that benchmarks draw: of rails, of in-network trees and of ranks, in the words of `--fault`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from railweave.experiments.errors import OptionError
from railweave.experiments.program.fault_script import fault_of
from railweave.topologies.lab.faults import Fault
from railweave.topologies.model import Plane, Topology

RATE_CUT = 0.01  # of the plane's rate
LEAST_CUT_BPS = 100_000  # no link becomes slower
UNSHAPED_CUT_BPS = 10_000_000  # the new rate of an unshaped link
ANY_RAIL = "-"  # the rail of faults that hit a rank


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how to draw one, and its effect."""

    name: str
    words: str = ""  # of the fault, with names of `_places` for its place; empty: it hits a rank
    fail_stop: bool = True  # the rail carries nothing until the repair
    detour: bool = False  # calls continue before the repair, even on one rail
    spines: int = 0  # number of spines that the fault needs
    repeated: bool = False  # injected and repaired several times in a row

    def draw(self, plane: Plane, rng: random.Random) -> Fault:
        """Return a fault of this kind at a random place of a plane."""
        words = self.words.format(rail=plane.name, **_places(plane, rng))
        return fault_of(words, Topology(plane.name, (), (plane,)))

    def missing(self, plane: Plane) -> str:
        """Return the part that a plane lacks for this fault; empty if it lacks nothing."""
        if self in OF_RDMA:
            return "" if plane.kind in ("rdma", "netreduce") else "a rail of RDMA"
        if self not in OF_TREES:
            return ""
        if plane.kind != "ina":
            return "an in-network rail"
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


KINDS = (
    Kind("host link down", "host link down {host} {rail}"),
    Kind("switch port down", "switch port down {host} {rail}"),
    Kind("loss one way", "loss to the {end} {host} {rail}"),
    Kind("loss both ways", "loss both ways {host} {rail}"),
    Kind("switch killed", "switch killed {switch}"),
    Kind("switch frozen", "switch frozen {switch}"),
    Kind("rate cut", "rate {rate} {rail} {host}", fail_stop=False),
    Kind("flapping", "flapping {host} {rail}", fail_stop=False),
)

OF_RDMA = (Kind("queue pair ended", "queue pair ended {host} {rail}", fail_stop=False),)

# Hosts need their leaf, but another spine can replace a spine. Switches run without a controller.
OF_TREES = (
    Kind("leaf killed", "switch killed {leaf}"),
    Kind("uplink cut", "link cut {uplink}", fail_stop=False, detour=True, spines=2),
    Kind("spine killed", "switch killed {spine}", fail_stop=False, detour=True, spines=2),
    Kind("controller restarts", "controller killed", fail_stop=False, detour=True, repeated=True),
)

RANK_COMPUTES, RANK_KILLED = (Kind(name, fail_stop=False) for name in ("rank computes", "rank killed"))
OF_RANKS = (RANK_COMPUTES, RANK_KILLED)


def chosen(names: Sequence[str], planes: Sequence[Plane]) -> list[tuple[Kind, str]]:
    """Return the kinds with these names, each with a rail that it hits. Faults of ranks come last.

    Without names, return all kinds. Faults of trees then need a plane with trunks. Raises OptionError for an
    unknown name, and for a fault that fits no rail.
    """
    known = {kind.name: kind for kind in (*KINDS, *OF_RDMA, *OF_TREES, *OF_RANKS)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise OptionError(f"fault {unknown[0]!r}", f"one of {', '.join(known)}", "correct the name")
    trees = OF_TREES if any(plane.trunks for plane in planes) else ()
    wanted = [known[name] for name in names] or [*KINDS, *OF_RDMA, *trees, *OF_RANKS]
    of_rails = [kind for kind in wanted if kind.words]
    for kind in of_rails if names else ():
        lacks = {kind.missing(plane) for plane in planes}
        if "" not in lacks:
            raise OptionError(
                f"fault {kind.name!r} fits none of the rails",
                " and ".join(sorted(lacks)),
                "add such a rail, or omit the fault",
            )
    return [
        *((kind, plane.name) for kind in of_rails for plane in planes if not kind.missing(plane)),
        *((kind, ANY_RAIL) for kind in OF_RANKS if kind in wanted),
    ]
