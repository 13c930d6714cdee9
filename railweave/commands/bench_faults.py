# SPDX-License-Identifier: Apache-2.0
"""`railweave bench faults`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError

EPILOG = (
    "Examples: railweave bench faults · railweave bench faults --trials 2 --rails ina,tcp · "
    "railweave bench faults --faults 'spine killed,uplink cut' --json r.json"
)


def faults(
    topology: common.Topology = "leaf-spine:racks=2,hosts=2,spines=2",
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina",
    rate: common.Rates = None,
    trials: common.Trials = 20,
    seed: common.Seed = 1,
    only: Annotated[
        str,
        typer.Option(
            "--faults",
            help="worker killed, switch restart, uplink cut, host link cut, spine killed, controller "
            "restarts; default: all.",
        ),
    ] = "",
    restarts: Annotated[int, typer.Option(help="Restarts of the controller in one trial.")] = 10,
    size: common.Size = "64K",
    deadline: Annotated[float, typer.Option(help="Seconds to wait for an error, or for recovery.")] = 30.0,
    switch: common.SwitchTarget = "embedded",
    out: common.Out = Path("out/faults"),
    json_file: common.JsonFile = None,
) -> None:
    """Kill processes and cut links while exact sums run: outcomes on the ranks, times, wrong elements."""
    with common.one_line_errors():
        from railweave.experiments.faults import report, run  # noqa: PLC0415

        chosen = common.topology_of(topology, hosts, rails, rate, switch)
        sizes = units.parse_sizes(size)
        if len(sizes) != 1 or trials < 1 or restarts < 1:
            raise OptionError(
                f"--size {size}, --trials {trials}, --restarts {restarts}: expected one size, and 1 or more"
            )
        options = run.FaultsOptions(
            topology=chosen,
            out=out,
            trials=trials,
            seed=seed,
            faults=common.names(only),
            bytes=sizes[0],
            restarts=restarts,
            deadline_s=deadline,
            switch_target=common.check_target(switch, chosen),
        )
        result = common.run(
            run.run(
                options,
                on_phase=common.phase,
                on_trial=lambda trial: typer.echo(f"  {report.line(trial)}", err=True),
            )
        )
        console = common.console(json_file)
        console.print(report.table(result))
        console.print(report.NOTE)
        common.write_result(report.as_json(result), json_file, seed=seed)
        if not result.ok:
            raise OptionError("a trial did not end as expected, or an element was wrong: see the table")
