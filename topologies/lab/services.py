# SPDX-License-Identifier: Apache-2.0
"""The command lines of a lab's switches and controller."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from railweave.topologies.lab.namespaces import interface_of_port
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import P4_KINDS, Plane, Switch, Topology

if TYPE_CHECKING:
    from railweave.switch.targets import Target


def switch_command(options: LabOptions, plane: Plane, switch: Switch) -> list[str]:
    """Return the command that runs one P4 switch of a plane on its interfaces."""
    ports = {
        nic.port: interface_of_port(switch.name, nic.port) for nic in plane.nics if nic.switch == switch.name
    }
    for trunk in plane.trunks:
        for name, port in ((trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port)):
            if name == switch.name:
                ports[port] = interface_of_port(name, port)
    return _target(options).command(
        interfaces=ports,
        grpc=switch.p4runtime,
        device_id=switch.device_id,
        arguments=_impairments(options, plane, switch, ports),
    )


def _target(options: LabOptions) -> Target:
    from railweave.switch.targets import TARGETS  # noqa: PLC0415 - not needed for planes of bridges

    return TARGETS[options.switch_target]


def _impairments(options: LabOptions, plane: Plane, switch: Switch, ports: Iterable[int]) -> list[str]:
    """Impair every link once per direction: at a switch's output, and at its input from hosts."""
    if not options.impair:
        return []
    hosts = [nic.port for nic in plane.nics if nic.switch == switch.name]
    places = [*(f"{port}/out" for port in ports), *(f"{port}/in" for port in hosts)]
    number = [other.name for other in plane.switches].index(switch.name)
    settings = f"{options.impair},seed={1000 * options.seed + number}"
    return [part for place in places for part in ("--impair", f"{place}:{settings}")]


def controller_command(options: LabOptions, topology: Topology, listen: str) -> list[str]:
    """Return the command that runs the controller on the topology file in the lab's folder."""
    command = [sys.executable, "-m", "railweave", "controller"]
    command += ["--topology", str(options.out / "topology.yaml"), "--listen", listen]
    for name, probability in options.loss.items():
        if topology.plane(name).kind in P4_KINDS:
            command += ["--loss", f"{name}={probability:g}"]
    with_p4 = any(switch.p4runtime for plane in topology.planes for switch in plane.switches)
    if with_p4 and (lanes := _target(options).lanes):
        command += ["--lanes", str(lanes)]
    return [*command, *options.controller]
