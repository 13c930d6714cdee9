# SPDX-License-Identifier: Apache-2.0
"""`railweave run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.errors import WRONG
from railweave.experiments import units
from railweave.experiments.errors import OptionError
from railweave.help_texts import examples
from railweave.topologies.errors import WorkerFailed

app = typer.Typer()

SIGNALLED = 128  # shells add the signal's number


@app.command(
    "run",
    cls=common.LiveCommand,
    epilog=examples(
        "run -- python my.py",
        "run --rails ina,tcp --fault '2s: host link down h1 ina; 4s: repair' \\\n      -- python my.py",
        "run --shell",
    ),
)
def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Program and its arguments after --, to run on every host.", show_default=False),
    ] = None,
    topology: common.Topology = "planes",
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.RateOfTarget = None,
    mtu: common.Mtu = common.DEFAULT_MTU,
    loss: common.Loss = "0",
    impair: Annotated[
        str,
        typer.Option(
            help="Impairment of the links of P4 planes, as for railweave switch. Default: none.",
            show_default=False,
        ),
    ] = "",
    shares: common.Shares = None,
    fault: Annotated[
        str,
        typer.Option(
            help="Faults and repairs, with times since all ranks have joined (see above). Default: none.",
            show_default=False,
        ),
    ] = "",
    join: Annotated[
        float,
        typer.Option(
            help="Longest time in seconds until all ranks have called railweave.init; 0 means that they "
            "need not.",
            min=0,
        ),
    ] = 60.0,
    shell: Annotated[
        bool, typer.Option(help="Open Mininet's prompt; leaving the prompt ends the run.")
    ] = False,
    switch: common.SwitchTarget = "embedded",
    seed: common.Seed = 1,
    out: common.Out = Path("out/run"),
    live: common.Live = None,
    json_file: common.JsonFile = None,
) -> None:
    """Run your program on Mininet hosts over several rails.

    Every host runs one process and is on one plane per rail. A process finds in its environment RANK,
    WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and everything that railweave.init() needs. The first
    process that fails ends the others, and its exit status is that of the command. At the end the command
    compares the agents' byte counts with those of the kernel.

    --fault takes a script of times, faults and places: '2s: host link down h1 ina; 4s: repair'. The places
    and their faults are:

    \b
    HOST PLANE         host link down, switch port down, flapping, loss both ways,
                       loss to the switch, loss to the host, queue pair ended
    SWITCH             switch killed, switch frozen
    NODE NODE          link cut
    RATE PLANE [HOST]  rate
    (no place)         controller killed
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.fault_script import parse  # noqa: PLC0415
        from railweave.experiments.program import run as program  # noqa: PLC0415

        if not command and not shell:
            raise OptionError("no program", "one behind --", "write it as in railweave run -- python my.py")
        chosen = common.topology_of(topology, hosts, rails, rate, switch, mtu)
        options = program.ProgramOptions(
            topology=chosen,
            command=command or [],
            lab=common.lab_of(chosen, folder, switch, loss, impair=impair, seed=seed),
            shares=units.parse_shares(shares, [plane.name for plane in chosen.planes]),
            faults=parse(fault, chosen),
            join_s=join,
            shell=shell,
            live=live,
        )
        console, tell = common.console(json_file), common.teller(json_file)
        try:
            on_phase = common.note if shell else common.phase  # the prompt has the terminal
            result = common.run(
                program.run(options, on_phase, lambda rank, line: tell(f"[rank {rank}] {line}"), common.note),
                folder,
            )
        except WorkerFailed as error:
            typer.echo(f"railweave: {error}", err=True)
            raise typer.Exit(error.code if error.code > 0 else SIGNALLED - error.code) from error
        program.print_report(result, console)
        for what, path in program.write_files(result).items():
            console.print(f"{what}: {path}", soft_wrap=True)
        common.write_result(program.as_json(result), json_file, seed=seed)
        if not result.ok:
            raise typer.Exit(WRONG)
