# SPDX-License-Identifier: Apache-2.0
"""Make a topology from Mininet nodes: namespaces, veth pairs, bridges, rates. Only shells run in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railweave.topologies.errors import LabError, LabUnavailable, TopologyError
from railweave.topologies.lab import flows as flow_counters
from railweave.topologies.lab.guard import guard_rules
from railweave.topologies.lab.shaping import TokenBucket, bridge_loss_rules, class_rules, queue_commands
from railweave.topologies.model import DEFAULT_MTU, Nic, Plane, Topology
from railweave.topologies.planes import CONTROLLER_ADDRESS, management_address

CONTROLLER_NODE = "c0"
MANAGEMENT_NODE = "s-mgmt"
MANAGEMENT_PREFIX = 16
MANAGEMENT_INTERFACE = "mgmt"
BRIDGE = "br0"  # in the namespace of a switch without P4
MAX_INTERFACE_NAME = 15  # characters: Linux's IFNAMSIZ, without the zero at the end
CHECK = "check this machine with `railweave doctor`"
_INTERFACE = re.compile(r"[a-z][\w.-]*", re.ASCII | re.IGNORECASE)  # also the name of nft's chain


def require_tools() -> None:
    """Raise LabUnavailable if this machine or this user cannot make network namespaces."""
    if os.geteuid() != 0:
        raise LabUnavailable(
            f"user {os.geteuid()} runs this",
            "root, which network namespaces need",
            "run the command again with sudo",
        )
    packages = {
        "mnexec": "mininet",
        "ip": "iproute2",
        "tc": "iproute2",
        "nft": "nftables",
        "setpriv": "util-linux",
    }
    for tool, package in packages.items():
        if shutil.which(tool) is None:
            raise LabUnavailable(
                f"{tool} is missing", f"the package {package}", f"install it: apt-get install {package}"
            )
    # Mininet waits for ever for the shell of a namespace that could not be made, as in a container.
    attempt = subprocess.run(["mnexec", "-cn", "true"], capture_output=True, text=True, check=False)
    if attempt.returncode != 0:
        raise LabUnavailable(
            "this machine cannot make network namespaces: `mnexec -cn true` says "
            f"{attempt.stderr.strip() or f'status {attempt.returncode}'!r}",
            "the right to make them",
            "start a container as privileged",
        )
    try:
        import mininet.net  # noqa: F401, PLC0415 - here, so that its absence has a message
    except ImportError as error:
        raise LabUnavailable(
            f"Mininet cannot be imported ({error})", "its Python package", "install it: pip install mininet"
        ) from error


def interface_of_port(switch: str, port: int) -> str:
    """Return the name of a switch's interface."""
    return f"{switch}-eth{port}"


def check_names(topology: Topology) -> None:
    """Raise TopologyError, which names the node, for nodes and interfaces that cannot be made."""
    switches = [switch.name for plane in topology.planes for switch in plane.switches]
    nodes = Counter([CONTROLLER_NODE, MANAGEMENT_NODE, *topology.hosts, *switches])
    for name, count in nodes.items():
        if count > 1:
            raise TopologyError(
                f"{name!r} is the name of {count} nodes",
                f"different names, and neither {CONTROLLER_NODE} nor {MANAGEMENT_NODE}, which every lab has",
                "rename one",
            )
    interfaces = Counter(_interfaces(topology))
    for (node, name), count in interfaces.items():
        given = f"{node}: its interface would be called {name!r}"
        if len(name) > MAX_INTERFACE_NAME:
            raise TopologyError(
                f"{given}, {len(name)} characters", f"{MAX_INTERFACE_NAME} at most", "choose a shorter name"
            )
        if not _INTERFACE.fullmatch(name):
            raise TopologyError(given, "an ASCII letter, then letters, digits, '.', '_' or '-'", "rename it")
        if count > 1:
            raise TopologyError(f"{given}, and another one as well", "different names", "rename one")


def _interfaces(topology: Topology) -> Iterator[tuple[str, str]]:
    """Yield each interface of hosts and switches, with its node in words."""
    for host in topology.hosts:
        yield f"host {host!r}", MANAGEMENT_INTERFACE
    for plane in topology.planes:
        for nic in plane.nics:
            yield f"host {nic.host!r}", nic.interface
            yield f"switch {nic.switch!r}", interface_of_port(nic.switch, nic.port)
        for trunk in plane.trunks:
            yield f"switch {trunk.lower!r}", interface_of_port(trunk.lower, trunk.lower_port)
            yield f"switch {trunk.upper!r}", interface_of_port(trunk.upper, trunk.upper_port)


def bridge_guard(plane: Plane, bridge: str) -> str:
    """Return an nft script that lets a bridge's hosts send only as themselves."""
    hosts = {interface_of_port(bridge, nic.port): nic for nic in plane.nics if nic.switch == bridge}
    ends = [end for t in plane.trunks for end in ((t.lower, t.lower_port), (t.upper, t.upper_port))]
    return guard_rules(hosts, [interface_of_port(*end) for end in ends if end[0] == bridge])


class Primed:
    """A started command that waits for its input before it has an effect."""

    def __init__(self, node: str, command: Sequence[str], text: str) -> None:
        """Start the command. Use `Namespaces.prime`."""
        self._node = node
        self._text = text
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def fire(self) -> None:
        """Send the input."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe, as asked for
        self._process.stdin.write(self._text)
        self._process.stdin.close()

    def wait(self) -> None:
        """Wait until the command has finished. LabError if it failed."""
        assert self._process.stderr is not None  # noqa: S101
        complaint = self._process.stderr.read()
        self._process.stderr.close()
        if self._process.wait():
            raise LabError(
                f"{self._text!r} failed in namespace {self._node}: {complaint.strip()}",
                "a command that succeeds",
                CHECK,
            )

    def dismiss(self) -> None:
        """End the command without input, and so without effect."""
        self._text = ""
        self.fire()
        self.wait()


@dataclass(frozen=True)
class Shape:
    """The limits of a link: bits per second (0: unshaped), and the longest packet in bytes."""

    rate_bps: int = 0
    mtu: int = DEFAULT_MTU


class Namespaces:
    """The Mininet network of one topology. `close` removes the network."""

    def __init__(
        self,
        topology: Topology,
        loss: Mapping[str, float],
        *,
        plain_frames: bool = False,
        flows: bool = False,
    ) -> None:
        """Make the namespaces and join them.

        `loss` maps planes made of bridges to the probability that a UDP frame is dropped. With
        `plain_frames`, hosts on P4 planes send frames of at most one MTU with finished checksums. A switch
        that reads its ports through libpcap needs this, because it takes a super-packet for one long frame.
        With `flows`, nft counts the bytes that hosts send, by ports.
        """
        require_tools()
        from mininet.log import setLogLevel  # noqa: PLC0415
        from mininet.net import Mininet  # noqa: PLC0415

        setLogLevel("error")
        self._topology = topology
        self._net = Mininet(topo=None, build=False, controller=None)
        self._ip: dict[str, list[str]] = defaultdict(list)  # lines for `ip -batch` by node
        self._tc: dict[str, list[str]] = defaultdict(list)
        self._shaped: dict[str, list[str]] = defaultdict(list)  # interfaces by node
        try:
            self._add_nodes()
            for plane in topology.planes:
                self._add_plane(plane, plain_frames=plain_frames)
            self._add_management()
            sources = [nic.address for plane in topology.planes for nic in plane.nics]
            for name in self.nodes():
                self.feed(name, ["ip", "-batch", "-"], "\n".join([*self._ip[name], ""]))
                if self._tc[name]:
                    self.feed(name, ["tc", "-batch", "-"], "\n".join([*self._tc[name], ""]))
                if self._shaped[name]:
                    self.feed(name, ["nft", "-f", "-"], class_rules(self._shaped[name], sources))
            self._add_loss(loss)
            if flows:
                self._count_flows()
        except BaseException:
            self.close()
            raise

    def nodes(self) -> list[str]:
        """Return the names of all namespaces."""
        return [node.name for node in self._net.hosts]

    def pid(self, node: str) -> int:
        """Return the id of the process (Mininet's shell) that holds a node's namespace."""
        return int(self._net.get(node).pid)

    def enter(self, node: str, command: Iterable[str]) -> list[str]:
        """Return the command line that runs `command` inside a node."""
        return ["mnexec", "-a", str(self.pid(node)), *command]

    def feed(self, node: str, command: list[str], text: str) -> str:
        """Run a command inside a node to its end with `text` as its input. Return its output."""
        done = subprocess.run(
            self.enter(node, command), input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LabError(
                f"{' '.join(command)} failed in namespace {node}: {done.stderr.strip()}; input:\n{text}\n",
                "a command that succeeds",
                CHECK,
            )
        return done.stdout

    def prime(self, node: str, command: Sequence[str], text: str) -> Primed:
        """Start a command inside a node, and hold its input back. It must read its input to the end first."""
        return Primed(node, self.enter(node, command), text)

    def prompt(self) -> None:
        """Open Mininet's prompt on this terminal. Return when the user leaves it."""
        from mininet.cli import CLI  # noqa: PLC0415
        from mininet.log import setLogLevel  # noqa: PLC0415

        setLogLevel("output")
        CLI(self._net)

    def close(self) -> None:
        """End the shells that hold the namespaces. Links and bridges disappear with the namespaces."""
        for node in self._net.hosts:
            node.terminate()
        self._net.hosts.clear()

    def _add_nodes(self) -> None:
        switches = [switch.name for plane in self._topology.planes for switch in plane.switches]
        for name in (MANAGEMENT_NODE, *switches, *self._topology.hosts, CONTROLLER_NODE):
            self._net.addHost(name)
            self.feed(name, ["sh"], _SETTINGS)
            self._ip[name].append("link set lo up")

    def _add_plane(self, plane: Plane, *, plain_frames: bool) -> None:
        bridges = {switch.name for switch in plane.switches if not switch.p4runtime}
        for bridge in bridges:
            self._add_bridge(bridge)
            self.feed(bridge, ["nft", "-f", "-"], bridge_guard(plane, bridge))
        prefix = plane.network.rpartition("/")[2]
        for nic in plane.nics:
            port = interface_of_port(nic.switch, nic.port)
            shape = Shape(plane.rate_bps, plane.mtu_of(nic))
            self._add_link(nic.host, nic.interface, nic.switch, port, shape, mac=nic.mac)
            self._net.get(nic.host).intf(nic.interface).ip = nic.address  # for Mininet's prompt: h1 ping h2
            self._ip[nic.host].append(f"address add {nic.address}/{prefix} dev {nic.interface}")
            self._ip[nic.host] += neighbours(nic, plane.nics)
            self._ip[nic.switch].append(_port_up(port, bridged=nic.switch in bridges))
            if plain_frames and len(bridges) < len(plane.switches):
                switch_off = [sys.executable, "-m", "railweave.topologies.lab.offloads", nic.interface]
                self.feed(nic.host, switch_off, "")
        for trunk in plane.trunks:
            ends = (trunk.lower, trunk.lower_port), (trunk.upper, trunk.upper_port)
            (lower, upper) = (interface_of_port(*end) for end in ends)
            shape = Shape(plane.rate_of(trunk), plane.mtu_of(trunk))
            self._add_link(trunk.lower, lower, trunk.upper, upper, shape)
            self._ip[trunk.lower].append(_port_up(lower, bridged=trunk.lower in bridges))
            self._ip[trunk.upper].append(_port_up(upper, bridged=trunk.upper in bridges))

    def _add_management(self) -> None:
        """Connect the controller with hosts and switches through one bridge."""
        self._add_bridge(MANAGEMENT_NODE)
        members = {
            host: management_address(number) for number, host in enumerate(self._topology.hosts, start=1)
        }
        members[CONTROLLER_NODE] = CONTROLLER_ADDRESS
        for plane in self._topology.planes:
            members |= {s.name: s.p4runtime.rpartition(":")[0] for s in plane.switches if s.p4runtime}
        for number, (node, address) in enumerate(members.items(), start=1):
            port = interface_of_port(MANAGEMENT_NODE, number)
            self._add_link(node, MANAGEMENT_INTERFACE, MANAGEMENT_NODE, port, Shape())
            self._ip[node] += [
                f"address add {address}/{MANAGEMENT_PREFIX} dev {MANAGEMENT_INTERFACE}",
                f"link set {MANAGEMENT_INTERFACE} up",
            ]
            self._ip[MANAGEMENT_NODE].append(f"link set {port} up master {BRIDGE}")

    def _add_bridge(self, node: str) -> None:
        """Add a bridge without spanning tree and delay: a port forwards from the moment it is up."""
        self._ip[node].append(
            f"link add name {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        )
        self._ip[node].append(f"link set {BRIDGE} up")

    def _add_link(
        self, node: str, interface: str, other: str, port: str, shape: Shape, mac: str | None = None
    ) -> None:
        rate_bps, mtu = shape.rate_bps, shape.mtu
        self._net.addLink(
            self._net.get(node),
            self._net.get(other),
            intfName1=interface,
            intfName2=port,
            cls1=_interface(),
            cls2=_interface(),
        )
        if mtu != DEFAULT_MTU:
            self._ip[node].append(f"link set {interface} mtu {mtu}")
            self._ip[other].append(f"link set {port} mtu {mtu}")
        if mac is not None:
            self._ip[node].append(f"link set {interface} address {mac} up")
        if rate_bps:
            self._tc[other] += queue_commands(port, rate_bps, mtu)
            for end, name in ((node, interface), (other, port)):
                self._shaped[end].append(name)
                self._ip[end].append(TokenBucket.of(rate_bps, mtu).interface_command(name))
        if rate_bps or mac is not None:
            self._tc[node] += queue_commands(interface, rate_bps, mtu, counted=True)

    def _count_flows(self) -> None:
        for host in self._topology.hosts:
            nics = [nic for plane in self._topology.planes for nic in plane.nics if nic.host == host]
            self.feed(host, ["nft", "-f", "-"], flow_counters.rules(nic.interface for nic in nics))

    def _add_loss(self, loss: Mapping[str, float]) -> None:
        for name, probability in loss.items():
            for switch in self._topology.plane(name).switches:
                if probability and not switch.p4runtime:
                    self.feed(switch.name, ["nft", "-f", "-"], bridge_loss_rules(probability))


def _port_up(port: str, *, bridged: bool) -> str:
    return f"link set {port} up" + (f" master {BRIDGE}" if bridged else "")


def neighbours(nic: Nic, nics: Iterable[Nic]) -> list[str]:
    """Return lines for `ip -batch` that enter a host's peers as permanent neighbours.

    So no benchmark's first packet waits for ARP.
    """
    return [
        f"neighbour replace {peer.address} lladdr {peer.mac} dev {nic.interface} nud permanent"
        for peer in nics
        if peer is not nic
    ]


def _interface() -> Any:
    """Return Mininet's interface class without configuration, which one `ip -batch` per node does instead."""
    from mininet.link import Intf  # noqa: PLC0415

    class Interface(Intf):  # type: ignore[misc]
        def config(self, **_params: Any) -> dict[str, Any]:
            return {}

        def delete(self) -> None:
            """Do nothing: the interface disappears with its namespace."""

    return Interface


# Router solicitations and mDNS over IPv6 would disturb the counts of frames. The machine's congestion control
# would influence results: for example, BBR keeps some flows that share a trunk slow for seconds. A namespace
# may always choose Reno, and no queue here overflows. With br_netfilter, each frame that a bridge forwards
# would pass the IP filter, which has no rules here.
_SETTINGS = """
for scope in all default; do
  switch=/proc/sys/net/ipv6/conf/$scope/disable_ipv6
  [ ! -e $switch ] || echo 1 > $switch
done
bridge=/proc/sys/net/bridge/bridge-nf-call-iptables
[ ! -e $bridge ] || echo 0 > $bridge
echo reno > /proc/sys/net/ipv4/tcp_congestion_control
"""
