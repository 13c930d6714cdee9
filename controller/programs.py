# SPDX-License-Identifier: Apache-2.0
"""Choose the program of a plane's switches: by their kind, by the links' MTU, or as requested."""

from __future__ import annotations

from pathlib import Path

from railweave.controller.errors import ControllerError
from railweave.errors import explain
from railweave.p4src import tofino_program
from railweave.p4src.artifacts import Artifact, artifact, lanes_for, mtu_for
from railweave.p4src.tofino_program import TofinoProgram
from railweave.topologies.model import Plane, Switch


def of_plane(plane: Plane, asked: Artifact | None = None) -> Artifact:
    """Return the program of a plane's v1model targets. ValueError if its Tofinos differ in lanes."""
    return _beside_tofinos(plane) or asked or artifact(lanes_for(plane.least_mtu))


def of_switch(switch: Switch, others: Artifact) -> Artifact | TofinoProgram:
    """Return a switch's program: `others` on v1model targets. ValueError if a Tofino's program is missing."""
    return tofino_program.load(Path(switch.tofino)) if switch.tofino else others


def check_links(plane: Plane, lanes: int) -> None:
    """Raise ControllerError for a link whose MTU is too small for packets with `lanes` lanes."""
    link, mtu = plane.narrowest()
    if mtu < mtu_for(lanes):
        raise ControllerError(
            f"plane {plane.name!r}: link {link} has an MTU of {mtu}",
            f"{mtu_for(lanes)} or more, for packets of {lanes} lanes",
            "raise its `mtu` (here and on the machines), or take fewer lanes (--lanes)",
        )


def _beside_tofinos(plane: Plane) -> Artifact | None:
    lanes = {s.name: tofino_program.load(Path(s.tofino)).lanes for s in plane.switches if s.tofino}
    if len(set(lanes.values())) > 1:
        found = ", ".join(f"{count} on {name}" for name, count in lanes.items())
        raise ValueError(
            explain(
                f"plane {plane.name!r}: its Tofinos' programs differ in lanes: {found}",
                "the same number of lanes",
                "compile the programs with the same number",
            )
        )
    return artifact(min(lanes.values())) if lanes else None
