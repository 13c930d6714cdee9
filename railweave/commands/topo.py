# SPDX-License-Identifier: Apache-2.0
"""`railweave topo`: show a topology as a tree, draw it, write it as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import Topology

app = typer.Typer(no_args_is_help=True)

YAML = (".yaml", ".yml")

Out = Annotated[
    Path | None, typer.Option(help="Draw to FILE.png, .svg or .pdf, or write the topology to FILE.yaml.")
]


@app.callback()
def topo() -> None:
    """Draw a topology, or write it as a file that `railweave controller` reads."""


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


@app.command("file", epilog="Example: railweave topo file net.yaml --out net.svg")
def file_command(
    path: Annotated[Path, typer.Argument(help="Topology file (YAML).")], out: Out = None
) -> None:
    """A topology from a file; says what is wrong with it."""
    with common.one_line_errors():
        from railweave.topologies.serialize import load  # noqa: PLC0415

        _show(load(path), out)


def _show(topology: Topology, out: Path | None) -> None:
    from railweave.topologies import draw  # noqa: PLC0415

    if out is not None and out.suffix not in (*YAML, *draw.SUFFIXES):
        raise TopologyError(
            f"cannot draw to {str(out)!r}; expected a name that ends in {', '.join(draw.SUFFIXES)}"
        )
    console = common.console(None)
    console.print(draw.tree(topology))
    if out is None:
        return
    if out.suffix in YAML:
        out.write_text(topology.to_yaml())
    else:
        draw.picture(topology, out)
    console.print(f"written: {out}")
