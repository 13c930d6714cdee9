# SPDX-License-Identifier: Apache-2.0
"""`railweave topo`: print a topology as a tree, draw it, or write it to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave import outputs
from railweave.commands import common
from railweave.experiments import units
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import Topology
from railweave.topologies.serialize import to_yaml

app = typer.Typer(no_args_is_help=True)

YAML = (".yaml", ".yml")

Out = Annotated[
    Path | None,
    typer.Option(help="Draw to a new FILE.png, .svg or .pdf, or write the topology to a new FILE.yaml."),
]


@app.callback()
def topo() -> None:
    """Print or draw a topology, or write it to a file that `railweave controller` reads."""


@app.command(
    "planes",
    epilog="Example: railweave topo planes --hosts 4 --rails ina,tcp,tcp --rate 1G,100M,100M --out net.png",
)
def planes_command(
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    out: Out = None,
) -> None:
    """N hosts, each with one NIC per plane; one plane per rail."""
    with common.one_line_errors():
        from railweave.topologies.planes import planes  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        _show(planes(hosts, kinds, common.rates_of(rate, kinds, "embedded")), out)


Racks = Annotated[int, typer.Option(help="Leaf switches.")]
PerRack = Annotated[int, typer.Option("--hosts", help="Hosts per rack.")]
Uplink = Annotated[
    str | None, typer.Option(help="Rate of links between switches; default: as the hosts' links.")
]


@app.command("leaf-spine", epilog="Example: railweave topo leaf-spine --racks 2 --spines 2 --out net.png")
def leaf_spine_command(
    racks: Racks = 2,
    hosts: PerRack = 4,
    spines: Annotated[int, typer.Option(help="Spine switches, each connected to every leaf.")] = 2,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    uplink: Uplink = None,
    out: Out = None,
) -> None:
    """Racks of hosts; on ina planes every leaf connects to every spine. Other planes are one bridge each."""
    with common.one_line_errors():
        from railweave.topologies.clos import leaf_spine  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        rates = common.rates_of(rate, kinds, "embedded")
        _show(leaf_spine(racks, hosts, spines, rails=kinds, rates=rates, uplink_bps=_uplink(uplink)), out)


@app.command("racks", epilog="Example: railweave topo racks --racks 4 --ina 2 --spine ina --out net.png")
def racks_command(
    racks: Racks = 4,
    hosts: PerRack = 4,
    ina: Annotated[int, typer.Option(help="Racks behind a P4 switch; the others have a bridge.")] = 2,
    spine: Annotated[str, typer.Option(help="plain: a bridge; ina: a P4 switch.")] = "plain",
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    uplink: Uplink = None,
    out: Out = None,
) -> None:
    """Racks below one spine; on ina planes only some of the switches aggregate."""
    with common.one_line_errors():
        from railweave.topologies.clos import mixed_racks  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        rates = common.rates_of(rate, kinds, "embedded")
        uplink_bps = _uplink(uplink)
        _show(mixed_racks(racks, hosts, ina, spine, rails=kinds, rates=rates, uplink_bps=uplink_bps), out)


@app.command(
    "fat-tree",
    epilog="Examples: railweave topo fat-tree --k 4 · "
    "railweave topo fat-tree --pods 2 --edges 2 --aggs 2 --cores 2 --hosts 2 --rails ina",
)
def fat_tree_command(
    k: Annotated[
        int, typer.Option(help="Ports per switch; the other counts default to values derived from it.")
    ] = 4,
    pods: Annotated[int, typer.Option(help="Pods; 0: k.", min=0)] = 0,
    edges: Annotated[int, typer.Option(help="Edge switches per pod; 0: k/2.", min=0)] = 0,
    aggs: Annotated[int, typer.Option(help="Aggregation switches per pod; 0: k/2.", min=0)] = 0,
    cores: Annotated[int, typer.Option(help="Cores; 0: (k/2)^2.", min=0)] = 0,
    hosts: Annotated[int, typer.Option(help="Hosts per edge switch; 0: k/2.", min=0)] = 0,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    uplink: Uplink = None,
    out: Out = None,
) -> None:
    """Three levels of switches on ina planes: a k-ary fat tree, or one with the given counts."""
    with common.one_line_errors():
        from railweave.topologies.clos import fat_tree  # noqa: PLC0415

        kinds = units.parse_rails(rails)
        rates = common.rates_of(rate, kinds, "embedded")
        counts = {"pods": pods, "edges": edges, "aggs": aggs, "cores": cores, "hosts": hosts}
        _show(fat_tree(k, **counts, rails=kinds, rates=rates, uplink_bps=_uplink(uplink)), out)


def _uplink(text: str | None) -> int | None:
    return None if text is None else units.parse_rate(text)


@app.command("file", epilog="Example: railweave topo file net.yaml --out net.svg")
def file_command(
    path: Annotated[Path, typer.Argument(help="Topology file (YAML).")], out: Out = None
) -> None:
    """A topology from a file, which is checked."""
    with common.one_line_errors():
        from railweave.topologies.serialize import load  # noqa: PLC0415

        _show(load(path), out)


def _show(topology: Topology, out: Path | None) -> None:
    from railweave.topologies import draw  # noqa: PLC0415

    if out is not None and out.suffix not in (*YAML, *draw.SUFFIXES):
        raise TopologyError(
            f"cannot draw to {str(out)!r}",
            f"a name that ends in {', '.join(draw.SUFFIXES)}",
            "rename the file",
        )
    outputs.check_new_file("--out", out)
    console = common.console(None)
    console.print(draw.tree(topology))
    if out is None:
        return
    if out.suffix in YAML:
        outputs.write_new_file("--out", out, to_yaml(topology))
    else:
        draw.picture(topology, out)
    console.print(f"written: {out}")
