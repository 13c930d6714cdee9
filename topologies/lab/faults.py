# SPDX-License-Identifier: Apache-2.0
"""Faults of a running network as values: the steps that inject and repair each fault.

Every kind of plane can have every fault, except for ended queue pairs. `injection` carries the faults out.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import Enum
from functools import partial

from railweave.topologies.errors import TopologyError
from railweave.topologies.lab.namespaces import BRIDGE, CONTROLLER_NODE, interface_of_port, neighbours
from railweave.topologies.lab.shaping import queue_commands
from railweave.topologies.model import Nic, Plane, Switch, Topology

FLAP_S = 0.3
CHAINS = "railweave_loss"  # prefix of the name of nft's table on an interface that loses frames
SINK = "sink"  # prefix of the name of a bridge without ports, which discards all frames


class Tool(Enum):
    """A tool that reads its commands from stdin to the end, and then executes them."""

    IP = ("ip", "-batch", "-")
    TC = ("tc", "-batch", "-")
    BRIDGE = ("bridge", "-batch", "-")
    NFT = ("nft", "-f", "-")
    END_QUEUE_PAIR = (sys.executable, "-m", "railweave.topologies.lab.end_queue_pair")


@dataclass(frozen=True)
class Step:
    """Commands for a tool inside a node."""

    node: str
    tool: Tool
    orders: str


class ProcessFault(Enum):
    """A fault of a switch's or the controller's process: killed, or stopped."""

    KILL = "kill"
    FREEZE = "freeze"


@dataclass(frozen=True)
class Fault:
    """One fault and its repair: steps, or a fault of a process."""

    name: str
    where: str  # in words
    inject: tuple[Step, ...] = ()
    repair: tuple[Step, ...] = ()
    before: tuple[Step, ...] = ()  # preparation of both, without effect on traffic
    after: tuple[Step, ...] = ()
    process: tuple[ProcessFault, str] | None = None  # with the node's name
    flap_s: float = 0.0  # length of each state of a flapping fault, until its repair; 0: inject once


def host_down(plane: Plane, host: str) -> Fault:
    """Take the host's interface down: no carrier at either end, and the host loses neighbours and routes.

    The kernel keeps an interface's IPv4 address and restores its route. The repair restores the neighbours.
    """
    nic = nic_of(plane, host)
    again = [f"link set {nic.interface} up", *neighbours(nic, plane.nics)]
    return Fault(
        "host link down",
        nic.interface,
        inject=(Step(host, Tool.IP, f"link set {nic.interface} down\n"),),
        repair=(Step(host, Tool.IP, "\n".join([*again, ""])),),
    )


def port_down(plane: Plane, host: str) -> Fault:
    """Take the switch's port down: no carrier at either end. The host's interface stays configured."""
    nic = nic_of(plane, host)
    port = interface_of_port(nic.switch, nic.port)
    return Fault(
        "switch port down",
        port,
        inject=(Step(nic.switch, Tool.IP, f"link set {port} down\n"),),
        repair=(Step(nic.switch, Tool.IP, f"link set {port} up\n"),),
    )


def queue_pair_ended(plane: Plane, host: str) -> Fault:
    """Give an error to a queue pair of the host that sends data. No repair is needed."""
    if plane.kind not in ("rdma", "netreduce"):
        raise TopologyError(
            f"plane {plane.name!r} of kind {plane.kind} has no queue pairs",
            "a plane of kind rdma or netreduce",
            "name another plane",
        )
    nic = nic_of(plane, host)
    port = interface_of_port(nic.switch, nic.port)
    return Fault("queue pair ended", port, inject=(Step(nic.switch, Tool.END_QUEUE_PAIR, f"{port}\n"),))


def flapping(plane: Plane, host: str, flap_s: float = FLAP_S) -> Fault:
    """Take the switch's port down and up again and again, each time for `flap_s`."""
    down = port_down(plane, host)
    return Fault("flapping", down.where, inject=down.inject, repair=down.repair, flap_s=flap_s)


def lossy(plane: Plane, host: str, *, to_switch: bool = True, to_host: bool = True) -> Fault:
    """Lose all frames of a host's link, in one direction or both. The carrier stays.

    Frames to the switch go to a sink. If a kernel hook dropped them, the kernel would tell the sender, unlike
    a broken cable. The hook is before the interface's queue, so queued frames still arrive.
    """
    nic = nic_of(plane, host)
    # Names per plane, because a host's links to several planes may fail at the same time.
    table, sink = f"{CHAINS}_{re.sub(r'[^a-z0-9]', '_', plane.name)}", f"{SINK}-{plane.name}"[:15]
    hooks = []
    if to_switch:
        hooks.append(("out", "egress", f'fwd to "{sink}"'))
    if to_host:
        hooks.append(("in", "ingress", "drop"))
    if not hooks:
        raise TopologyError(
            "a link that loses frames in neither direction", "one or both directions", "name a direction"
        )
    chains = "".join(
        f'  chain {chain} {{ type filter hook {hook} device "{nic.interface}" priority 0; }}\n'
        for chain, hook, _ in hooks
    )
    rules = "".join(f"add rule netdev {table} {chain} {verdict}\n" for chain, _, verdict in hooks)
    way = "both ways" if len(hooks) > 1 else "to the switch" if to_switch else "to the host"
    return Fault(
        f"loss {way}",
        nic.interface,
        before=(
            Step(host, Tool.IP, f"link add name {sink} type bridge\nlink set {sink} up\n"),
            Step(host, Tool.NFT, f"table netdev {table} {{\n{chains}}}\n"),
        ),
        inject=(Step(host, Tool.NFT, rules),),
        repair=(Step(host, Tool.NFT, f"flush table netdev {table}\n"),),
        after=(
            Step(host, Tool.NFT, f"delete table netdev {table}\n"),
            Step(host, Tool.IP, f"link del {sink}\n"),
        ),
    )


def switch_killed(plane: Plane, switch: Switch | None = None) -> Fault:
    """Kill a switch: its process, or the bridge. The links keep their carrier."""
    switch = switch or plane.switches[0]
    if switch.p4runtime:
        return Fault("switch killed", switch.name, process=(ProcessFault.KILL, switch.name))
    return Fault(
        "switch killed",
        switch.name,
        inject=(Step(switch.name, Tool.IP, f"link set {BRIDGE} down\n"),),
        repair=(Step(switch.name, Tool.IP, f"link set {BRIDGE} up\n"),),
    )


def switch_frozen(plane: Plane, switch: Switch | None = None) -> Fault:
    """Freeze a switch: stop its process, or disable all ports of the bridge. The links keep their carrier."""
    switch = switch or plane.switches[0]
    if switch.p4runtime:
        return Fault("switch frozen", switch.name, process=(ProcessFault.FREEZE, switch.name))
    ends = [(nic.switch, nic.port) for nic in plane.nics]
    for trunk in plane.trunks:
        ends += [(trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port)]
    ports = [interface_of_port(name, port) for name, port in ends if name == switch.name]

    def state(number: int) -> tuple[Step, ...]:
        orders = "".join(f"link set dev {port} state {number}\n" for port in ports)
        return (Step(switch.name, Tool.BRIDGE, orders),)

    disabled, forwarding = 0, 3
    return Fault("switch frozen", switch.name, inject=state(disabled), repair=state(forwarding))


def link_cut(topology: Topology, node: str, other: str) -> Fault:
    """Take the links between two neighbours down, at the end of the switch, or of the upper switch."""
    down, up = (link_steps(topology, node, other, state) for state in ("down", "up"))
    return Fault("link cut", f"{node} - {other}", inject=down, repair=up)


def controller_killed() -> Fault:
    """Kill the controller. Switches and jobs go on."""
    return Fault("controller killed", CONTROLLER_NODE, process=(ProcessFault.KILL, CONTROLLER_NODE))


def rate_changed(plane: Plane, rate_bps: int, host: str = "") -> Fault:
    """Change the rate of a plane's links, or of one host's link. The repair restores the plane's rate."""
    return Fault(
        "rate changed",
        f"{plane.name} {host}".strip(),
        inject=rate_steps(plane, plane.rate_bps, rate_bps, host),
        repair=rate_steps(plane, rate_bps, plane.rate_bps, host),
    )


def rate_steps(plane: Plane, before_bps: int, rate_bps: int, host: str = "") -> tuple[Step, ...]:
    """Change the rate of both ends of all links of a plane, or of one host's link; 0 is unshaped.

    Trunks with their own rate keep it. A queue that is shaped before and after keeps its frames.
    """
    lines: dict[str, list[str]] = {}
    queue = partial(queue_commands, shaped=before_bps > 0, usual_bps=plane.rate_bps)
    for nic in [nic_of(plane, host)] if host else plane.nics:
        port = interface_of_port(nic.switch, nic.port)
        mtu = plane.mtu_of(nic)
        lines.setdefault(nic.host, []).extend(queue(nic.interface, rate_bps, mtu, counted=True))
        lines.setdefault(nic.switch, []).extend(queue(port, rate_bps, mtu))
    for trunk in plane.trunks if not host else ():
        for switch, number in ((trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port)):
            if trunk.rate_bps is None:
                port, mtu = interface_of_port(switch, number), plane.mtu_of(trunk)
                lines.setdefault(switch, []).extend(queue(port, rate_bps, mtu))
    return tuple(Step(node, Tool.TC, "\n".join([*orders, ""])) for node, orders in lines.items())


def link_steps(topology: Topology, node: str, other: str, state: str) -> tuple[Step, ...]:
    """Set the links between two neighbours `up` or `down`, at the end of the switch, or the upper switch."""
    pair, ends = {node, other}, []
    for plane in topology.planes:
        ends += [(nic.switch, nic.port) for nic in plane.nics if {nic.host, nic.switch} == pair]
        ends += [(t.upper, t.upper_port) for t in plane.trunks if {t.lower, t.upper} == pair]
    if not ends:
        raise TopologyError(
            f"{node} and {other} have no link in topology {topology.name!r}",
            "a host and its switch, or two neighbouring switches",
            "draw the topology with `railweave topo`, and correct the names",
        )
    return tuple(
        Step(switch, Tool.IP, f"link set {interface_of_port(switch, port)} {state}\n")
        for switch, port in ends
    )


def nic_of(plane: Plane, host: str) -> Nic:
    """Return a host's interface on a plane. TopologyError if the host is not on this plane."""
    for nic in plane.nics:
        if nic.host == host:
            return nic
    raise TopologyError(
        f"host {host!r} is not on plane {plane.name!r}",
        f"one of {', '.join(nic.host for nic in plane.nics)}",
        "correct the host or the plane",
    )
