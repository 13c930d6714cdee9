# SPDX-License-Identifier: Apache-2.0
"""Topologies as a picture and as a tree of text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.topologies.model import P4_KINDS, Plane, Topology

if TYPE_CHECKING:
    from rich.tree import Tree

# Okabe and Ito's palette, safe for colour-blind readers
COLOURS = {
    "ina": "#0072b2",
    "tcp": "#e69f00",
    "rdma": "#009e73",
    "netreduce": "#cc79a7",
    "algorithm": "#d55e00",
}
BRIDGE = "#8c8c8c"  # a bridge of an ina plane, which only forwards
SUFFIXES = (".png", ".svg", ".pdf")


def rate_text(rate_bps: int) -> str:
    """Return `100 Mbit/s`, or `unshaped` for 0."""
    for unit, scale in (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3)):
        if rate_bps >= scale:
            return f"{rate_bps / scale:g} {unit}"
    return "unshaped" if rate_bps == 0 else f"{rate_bps} bit/s"


def tree(topology: Topology) -> Tree:
    """Return the topology as a rich tree: planes, their switches, the peer of every port."""
    from rich.text import Text  # noqa: PLC0415
    from rich.tree import Tree  # noqa: PLC0415

    counts = f": {len(topology.hosts)} hosts, {len(topology.planes)} planes"
    root = Tree(Text.assemble((topology.name, "bold"), counts))
    for plane in topology.planes:
        colour = COLOURS[plane.kind]
        about = f" {plane.kind}  {plane.network}  {rate_text(plane.rate_bps)}"
        branch = root.add(Text.assemble((plane.name, f"bold {colour}"), about))
        for switch in plane.switches:
            what = f"P4 switch, P4Runtime {switch.p4runtime}" if switch.p4runtime else "Linux bridge"
            leaf = branch.add(Text.assemble(switch.name, (f"  {what}", "dim")))
            for nic in plane.nics:
                if nic.switch == switch.name:
                    link = f"  {nic.interface}  {nic.address}  {nic.mac}"
                    leaf.add(Text.assemble(f"port {nic.port}: {nic.host}", (link, "dim")))
            for trunk in plane.trunks:
                rate = f"  {rate_text(trunk.rate_bps)}" if trunk.rate_bps is not None else ""
                if trunk.upper == switch.name:
                    ends = f"port {trunk.upper_port}: {trunk.lower} port {trunk.lower_port}"
                    leaf.add(Text.assemble(ends, (rate, "dim")))
                if trunk.lower == switch.name:
                    ends = f"port {trunk.lower_port}: up to {trunk.upper} port {trunk.upper_port}"
                    leaf.add(Text.assemble(ends, (rate, "dim")))
    return root


def picture(topology: Topology, path: Path) -> None:
    """Draw the topology to a file. The file's suffix, one of SUFFIXES, selects the format."""
    import matplotlib  # noqa: PLC0415 - a second to import

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    widest = sum(max(len(level) for level in plane.levels()) for plane in topology.planes)
    width = max(1.5 * len(topology.hosts), 2.6 * len(topology.planes), 1.5 * widest, 4.0)
    figure, axes = plt.subplots(figsize=(width, 2.4 + _depth(topology)), layout="constrained")
    places = _places(topology, width)
    for plane in topology.planes:
        _draw_plane(axes, plane, places)
    for host in topology.hosts:
        _box(axes, places[host], host, "#f2f2f2", "#444444")
    axes.set_xlim(0, width)
    axes.set_ylim(-0.55, _depth(topology) + 0.75)
    axes.set_axis_off()
    axes.set_title(
        f"{topology.name}: {len(topology.hosts)} hosts, {len(topology.planes)} planes",
        fontsize=11,
        parse_math=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _depth(topology: Topology) -> float:
    return 1.6 * max((len(plane.levels()) for plane in topology.planes), default=1)


def _places(topology: Topology, width: float) -> dict[str, tuple[float, float]]:
    places = {}
    for number, host in enumerate(topology.hosts):
        places[host] = (width * (number + 0.5) / len(topology.hosts), 0.0)
    widths = [max(len(level) for level in plane.levels()) for plane in topology.planes]
    shares = [own / sum(widths) for own in widths]
    for index, plane in enumerate(topology.planes):
        left, room = width * sum(shares[:index]), width * shares[index]
        for height, level in enumerate(plane.levels(), start=1):
            for number, switch in enumerate(level):
                places[switch.name] = (left + room * (number + 0.5) / len(level), 1.6 * height)
    return places


def _draw_plane(axes: Any, plane: Plane, places: dict[str, tuple[float, float]]) -> None:
    colour = COLOURS[plane.kind]
    ends = [(nic.host, nic.switch) for nic in plane.nics] + [(t.lower, t.upper) for t in plane.trunks]
    for lower, upper in ends:
        (x0, y0), (x1, y1) = places[lower], places[upper]
        axes.plot([x0, x1], [y0, y1], color=colour, linewidth=1.6, alpha=0.75, zorder=1)
    for switch in plane.switches:
        what = "P4 switch" if switch.p4runtime else "bridge"
        adds = switch.p4runtime or plane.kind not in P4_KINDS
        face = colour if adds else BRIDGE
        _box(axes, places[switch.name], f"{switch.name}\n{what}", face, face, text="white")
    x, y = places[plane.levels()[-1][0].name]
    axes.text(
        x,
        y + 0.36,
        f"{plane.network}\n{rate_text(plane.rate_bps)}",
        ha="center",
        va="bottom",
        fontsize=8,
        color=colour,
    )


def _box(
    axes: Any, place: tuple[float, float], label: str, face: str, edge: str, text: str = "black"
) -> None:
    style = {"boxstyle": "round,pad=0.45", "facecolor": face, "edgecolor": edge}
    font = {"fontsize": 9, "color": text, "parse_math": False}
    axes.text(*place, label, ha="center", va="center", **font, bbox=style, zorder=2)
