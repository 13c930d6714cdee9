# SPDX-License-Identifier: Apache-2.0
"""`railweave run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError
from railweave.topologies.errors import WorkerFailed

app = typer.Typer()

SIGNALLED = 128  # what shells add to a signal's number


@app.command(
    "run",
    cls=common.LiveCommand,
    epilog="Examples: railweave run -- python my.py · "
    "railweave run --rails ina,tcp --fault '2s: host link down h1 ina; 4s: repair' -- python my.py · "
    "railweave run --shell",
)
def run(
    command: Annotated[
        list[str] | None, typer.Argument(help="What every host runs, behind --.", show_default=False)
    ] = None,
    topology: common.Topology = "planes",
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    mtu: common.Mtu = common.DEFAULT_MTU,
    loss: common.Loss = "0",
    impair: Annotated[
        str, typer.Option(help="Impairment of P4 planes' links: as for railweave switch.")
    ] = "",
    shares: common.Shares = None,
    fault: Annotated[
        str, typer.Option(help="Faults and repairs, in time after all ranks have met: see above.")
    ] = "",
    join: Annotated[
        float,
        typer.Option(help="Seconds until all ranks have called railweave.init; 0: they need not.", min=0),
    ] = 60.0,
    shell: Annotated[bool, typer.Option(help="Open Mininet's prompt; leaving it ends the run.")] = False,
    switch: common.SwitchTarget = "embedded",
    seed: common.Seed = 1,
    out: Annotated[
        Path, typer.Option(help="Each run makes a folder in it, for logs, reports, timeline and trace.")
    ] = Path("out/run"),
    live: common.Live = None,
    json_file: common.JsonFile = None,
) -> None:
    """Run a program on Mininet hosts, one process per host, over one plane per rail.

    Every process has RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and what railweave.init() wants
    in its environment. The first that fails ends all, and its exit status is the command's. At the end the
    byte counts of the agents are compared with those of the kernel.

    A fault has its time and place: `--fault '2s: host link down h1 ina; 4s: repair'`. There are host link
    down, switch port down, flapping, loss both ways, loss to the switch, loss to the host, queue pair ended
    (each HOST PLANE), switch killed, switch frozen (SWITCH), link cut (NODE NODE), rate (RATE PLANE [HOST])
    and controller killed.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.program import report  # noqa: PLC0415
        from railweave.experiments.program.fault_script import parse  # noqa: PLC0415
        from railweave.experiments.program.run import ProgramOptions  # noqa: PLC0415
        from railweave.experiments.program.run import run as run_program  # noqa: PLC0415

        if not command and not shell:
            raise OptionError("no program", "one behind --", "write it as in railweave run -- python my.py")
        chosen = common.topology_of(topology, hosts, rails, rate, switch, mtu)
        options = ProgramOptions(
            topology=chosen,
            command=command or [],
            lab=common.lab_of(chosen, folder, switch, loss, impair=impair, seed=seed),
            shares=units.parse_shares(shares, [plane.name for plane in chosen.planes]),
            faults=parse(fault, chosen),
            join_s=join,
            shell=shell,
            live=live,
        )
        console = common.console(json_file)
        try:
            result = common.run(
                run_program(options, common.phase, lambda rank, line: typer.echo(f"[rank {rank}] {line}")),
                folder,
            )
        except WorkerFailed as error:
            typer.echo(f"railweave: {error}", err=True)
            raise typer.Exit(error.code if error.code > 0 else SIGNALLED - error.code) from error
        report.print_report(result, console)
        for what, path in report.write_files(result).items():
            console.print(f"{what}: {path}", soft_wrap=True)
        common.write_result(report.as_json(result), json_file, seed=seed)
        if not result.ok:
            raise typer.Exit(1)
