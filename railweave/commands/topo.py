# SPDX-License-Identifier: Apache-2.0
"""`railweave topo`: print a topology as a tree, draw it, or write it to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave import outputs
from railweave.commands import common
from railweave.experiments import units
from railweave.help_texts import examples
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import Topology
from railweave.topologies.serialize import to_yaml

app = typer.Typer(no_args_is_help=True)

YAML = (".yaml", ".yml")

Save = Annotated[
    Path | None,
    typer.Option(
        help="New file for the topology: a drawing (.png, .svg, .pdf) or YAML (.yaml). Default: no file.",
        metavar="FILE",
    ),
]


@app.callback()
def topo() -> None:
    """Print or draw a topology, or write it to a file.

    `railweave controller` reads the file.
    """


@app.command(
    "planes",
    epilog=examples("topo planes --hosts 4 --rails ina,tcp,tcp --rate 1G,100M,100M --save net.png"),
)
def planes_command(
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.RateOfTarget = None,
    save: Save = None,
) -> None:
    """Show hosts with one plane per rail.

    Each host has one NIC per plane.
    """
    with common.one_line_errors():
        from railweave.topologies.planes import planes  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        _show(planes(hosts, kinds, common.rates_of(rate, kinds, "embedded")), save)


Racks = Annotated[int, typer.Option(help="Number of racks, each with one leaf switch.")]
PerRack = Annotated[int, typer.Option("--hosts", help="Number of hosts per rack.")]
Uplink = Annotated[
    str | None,
    typer.Option(help="Link rate between switches in bit/s: 1G; 0 means unshaped. Default: that of --rate."),
]


@app.command("leaf-spine", epilog=examples("topo leaf-spine --racks 2 --spines 2 --save net.png"))
def leaf_spine_command(
    racks: Racks = 2,
    hosts: PerRack = 4,
    spines: Annotated[int, typer.Option(help="Number of spine switches, each connected to every leaf.")] = 2,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.RateOfTarget = None,
    uplink: Uplink = None,
    save: Save = None,
) -> None:
    """Show racks of hosts below spine switches.

    On ina planes every leaf is connected to every spine. Every other plane is one bridge.
    """
    with common.one_line_errors():
        from railweave.topologies.clos import leaf_spine  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        rates = common.rates_of(rate, kinds, "embedded")
        _show(leaf_spine(racks, hosts, spines, rails=kinds, rates=rates, uplink_bps=_uplink(uplink)), save)


@app.command("racks", epilog=examples("topo racks --racks 4 --ina 2 --spine ina --save net.png"))
def racks_command(
    racks: Racks = 4,
    hosts: PerRack = 4,
    ina: Annotated[
        int, typer.Option(help="Number of racks with a P4 switch; the other racks have a bridge.")
    ] = 2,
    spine: Annotated[
        str, typer.Option(help="Kind of the spine: plain (a bridge) or ina (a P4 switch).")
    ] = "plain",
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.RateOfTarget = None,
    uplink: Uplink = None,
    save: Save = None,
) -> None:
    """Show racks of which only some have a switch that aggregates.

    The racks are below one spine. On ina planes only the P4 switches aggregate.
    """
    with common.one_line_errors():
        from railweave.topologies.clos import mixed_racks  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        rates = common.rates_of(rate, kinds, "embedded")
        uplink_bps = _uplink(uplink)
        _show(mixed_racks(racks, hosts, ina, spine, rails=kinds, rates=rates, uplink_bps=uplink_bps), save)


@app.command(
    "fat-tree",
    epilog=examples(
        "topo fat-tree --k 4",
        "topo fat-tree --pods 2 --edges 2 --aggs 2 --cores 2 --hosts 2 --rails ina",
    ),
)
def fat_tree_command(
    k: Annotated[
        int,
        typer.Option(help="Number of ports per switch, from which the defaults of the other counts follow."),
    ] = 4,
    pods: Annotated[int, typer.Option(help="Number of pods; 0 means k.", min=0)] = 0,
    edges: Annotated[int, typer.Option(help="Number of edge switches per pod; 0 means k/2.", min=0)] = 0,
    aggs: Annotated[
        int, typer.Option(help="Number of aggregation switches per pod; 0 means k/2.", min=0)
    ] = 0,
    cores: Annotated[int, typer.Option(help="Number of core switches; 0 means (k/2)^2.", min=0)] = 0,
    hosts: Annotated[int, typer.Option(help="Number of hosts per edge switch; 0 means k/2.", min=0)] = 0,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.RateOfTarget = None,
    uplink: Uplink = None,
    save: Save = None,
) -> None:
    """Show a fat tree: three levels of switches on ina planes.

    It is a k-ary fat tree, unless other options change its counts.
    """
    with common.one_line_errors():
        from railweave.topologies.clos import fat_tree  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        rates = common.rates_of(rate, kinds, "embedded")
        counts = {"pods": pods, "edges": edges, "aggs": aggs, "cores": cores, "hosts": hosts}
        _show(fat_tree(k, **counts, rails=kinds, rates=rates, uplink_bps=_uplink(uplink)), save)


def _uplink(text: str | None) -> int | None:
    return None if text is None else units.parse_rate(text)


@app.command("file", epilog=examples("topo file net.yaml --save net.svg"))
def file_command(
    path: Annotated[Path, typer.Argument(help="Path of the topology file (YAML).")], save: Save = None
) -> None:
    """Check a topology file and show the topology."""
    with common.one_line_errors():
        from railweave.topologies.serialize import load  # noqa: PLC0415

        _show(load(path), save)


def _show(topology: Topology, save: Path | None) -> None:
    from railweave.topologies import draw  # noqa: PLC0415

    if save is not None and save.suffix not in (*YAML, *draw.SUFFIXES):
        raise TopologyError(
            f"cannot draw to {str(save)!r}",
            f"a name that ends in {', '.join(draw.SUFFIXES)}",
            "rename the file",
        )
    outputs.check_new_file("--save", save)
    console = common.console(None)
    console.print(draw.tree(topology))
    if save is None:
        return
    if save.suffix in YAML:
        outputs.write_new_file("--save", save, to_yaml(topology))
    else:
        draw.picture(topology, save)
    console.print(f"written: {save}")
