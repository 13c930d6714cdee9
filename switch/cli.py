# SPDX-License-Identifier: Apache-2.0
"""`railweave switch`: the embedded switch, or BMv2 in its place, on interfaces of this machine."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from railweave.switch.options import MAX_SUPER_PACKET_BYTES, SwitchError, SwitchOptions, parse_interfaces
from railweave.switch.targets import TARGETS

_MODULES = {"embedded": "daemon", "bmv2": "bmv2"}

app = typer.Typer()


@app.command(
    "switch",
    epilog="Example: railweave switch -i 1@s1-eth1 -i 2@s1-eth2 --grpc 0.0.0.0:9559",
)
def switch(
    *,
    interface: Annotated[
        list[str] | None,
        typer.Option("--interface", "-i", help="PORT@INTERFACE; once for every port.", metavar="PORT@IF"),
    ] = None,
    grpc: Annotated[str, typer.Option(help="Address of the P4Runtime server.")] = "127.0.0.1:9559",
    device_id: Annotated[int, typer.Option(min=1, help="The switch's id in P4Runtime.")] = 1,
    target: Annotated[str, typer.Option(help=f"One of: {', '.join(TARGETS)}.")] = "embedded",
    program: Annotated[
        Path | None, typer.Option(help="BMv2 JSON to run; usually the controller pushes one.", exists=True)
    ] = None,
    p4info: Annotated[Path | None, typer.Option(help="The program's P4Info.", exists=True)] = None,
    super_packet_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_SUPER_PACKET_BYTES,
            help="Longest run of like UDP packets sent as one; short on slow links, 0 sends each alone.",
        ),
    ] = MAX_SUPER_PACKET_BYTES,
) -> None:
    """Run a P4 switch until Ctrl-C or SIGTERM; prints one line when it is ready."""
    try:
        if target not in TARGETS:
            raise SwitchError(f"unknown target {target!r}; there are {', '.join(TARGETS)}")
        if missing := TARGETS[target].missing():
            raise SwitchError(f"target {target} cannot run here: {missing}")
        options = SwitchOptions(
            interfaces=parse_interfaces(interface or []),
            grpc=grpc,
            device_id=device_id,
            program=program,
            p4info=p4info,
            super_packet_bytes=super_packet_bytes,
        )
        # Imported only now: gRPC is slow to import, and --help needs none.
        module = import_module(f"railweave.switch.{_MODULES[target]}")
        asyncio.run(module.run(options, lambda line: print(line, flush=True)))
    except SwitchError as error:
        typer.echo(f"railweave switch: {error}", err=True)
        raise typer.Exit(1) from None
