# SPDX-License-Identifier: Apache-2.0
"""`railweave switch`: the embedded switch or BMv2 on interfaces of this machine."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from railweave.errors import Unavailable
from railweave.exit_status import one_line_errors
from railweave.help_texts import examples
from railweave.outputs import check_new_file, print_line
from railweave.switch.errors import SwitchError
from railweave.switch.impairment import DIRECTIONS, parse_impairments
from railweave.switch.inspect.commands import COMMANDS, DeviceId, Grpc
from railweave.switch.options import (
    DROP_PORT,
    MAX_PRIORITY_QUEUES,
    MAX_SUPER_PACKET_BYTES,
    SwitchOptions,
    Tls,
    parse_interfaces,
    parse_pcap,
)
from railweave.switch.targets import TARGETS

_MODULES = {"embedded": "daemon", "bmv2": "bmv2"}

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
for _command, _example in COMMANDS:
    app.command(_command.__name__, epilog=_example)(_command)

_EXAMPLES = examples(
    "switch -i 1@s1-eth1 -i 2@s1-eth2 --grpc 0.0.0.0:9559     # run a switch",
    "switch tables routes                                     # inspect a running one",
)


@app.callback(invoke_without_command=True, epilog=_EXAMPLES)
def switch(
    context: typer.Context,
    *,
    interface: Annotated[
        list[str] | None,
        typer.Option(
            "--interface",
            "-i",
            help="Port number and network interface, or shm:NAME for a link in shared memory; give the "
            "option once per port.",
            metavar="PORT@IF",
        ),
    ] = None,
    grpc: Grpc = "127.0.0.1:9559",
    device_id: DeviceId = 1,
    target: Annotated[str, typer.Option(help=f"Switch target: {' or '.join(TARGETS)}.")] = "embedded",
    program: Annotated[
        Path | None,
        typer.Option(
            help="File of the program to run (BMv2 JSON). Default: wait until a controller pushes a program.",
            exists=True,
        ),
    ] = None,
    p4info: Annotated[
        Path | None, typer.Option(help="File of the program's P4Info. Default: none.", exists=True)
    ] = None,
    super_packet_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_SUPER_PACKET_BYTES,
            help="Largest UDP super-packet (GSO) that is sent, in bytes; a small one suits slow links, 0 "
            "disables them.",
        ),
    ] = MAX_SUPER_PACKET_BYTES,
    exact_bytes: Annotated[
        bool,
        typer.Option(
            "--exact-bytes",
            help="Send packets bit for bit as the program wrote them; packets without UDP checksum or with "
            "non-consecutive IPv4 ids are then not sent as super-packets, which is slower.",
        ),
    ] = False,
    cpu_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=DROP_PORT - 1, help="Port number for packet-in and packet-out. Default: none."
        ),
    ] = None,
    priority_queues: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_PRIORITY_QUEUES,
            help="Strict-priority queues of each port. Packets of queue N - 1 leave first. The switch drops "
            "packets with a priority (standard_metadata.priority) of N or more.",
        ),
    ] = 1,
    tls_cert: Annotated[
        Path | None, typer.Option(help="File of the P4Runtime server's certificate (PEM). Default: no TLS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="File of the P4Runtime server's key (PEM). Default: no TLS.")
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            help="File of the CA of the clients' certificates (PEM). Default: clients need no certificate."
        ),
    ] = None,
    impair: Annotated[
        list[str] | None,
        typer.Option(
            help="Impairment of the link at a port, or at all ports (*), such as 1/in:loss=0.01,delay=2ms; "
            "the keys are loss, duplicate, reorder, corrupt, delay, rate and seed.",
            metavar="PORT[/in|/out|/both]:KEY=VALUE,…",
        ),
    ] = None,
    pcap: Annotated[
        list[str] | None,
        typer.Option(
            help="Folder for captures of all packets, of one port or of all. Default: no captures.",
            metavar="[PORT@]FOLDER",
        ),
    ] = None,
) -> None:
    """Run a P4 switch on network interfaces, or inspect it.

    Without a command, the switch runs until Ctrl-C or SIGTERM. It prints one line when it is ready. The
    commands inspect a running switch.
    """
    if context.invoked_subcommand is not None:
        return
    with one_line_errors():
        if target not in TARGETS:
            raise SwitchError(f"--target {target!r}", f"one of {', '.join(TARGETS)}", "correct --target")
        if missing := TARGETS[target].missing():
            raise Unavailable(
                f"--target {target} cannot run here: {missing}",
                "all of its parts",
                "install them, or choose another target",
            )
        interfaces = parse_interfaces(interface or [])
        if not interfaces:
            raise SwitchError("no ports", "one at least", "give --interface PORT@INTERFACE")
        options = SwitchOptions(
            interfaces=interfaces,
            grpc=grpc,
            device_id=device_id,
            program=program,
            p4info=p4info,
            super_packet_bytes=super_packet_bytes,
            exact_bytes=exact_bytes,
            cpu_port=cpu_port,
            priority_queues=priority_queues,
            tls=Tls.of(tls_cert, tls_key, tls_ca),
            impairments=parse_impairments(impair or [], interfaces),
            pcap=parse_pcap(pcap or [], interfaces),
        )
        for port, folder in options.pcap.items():
            for direction in DIRECTIONS:
                check_new_file("--pcap", folder / f"{interfaces[port]}_{direction}.pcap")
        # Imported only now: gRPC is slow to import, and --help needs none.
        module = import_module(f"railweave.switch.{_MODULES[target]}")
        asyncio.run(module.run(options, print_line))
