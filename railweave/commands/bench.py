# SPDX-License-Identifier: Apache-2.0
"""`railweave bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import (
    bench_collectives,
    bench_failover,
    bench_jobs,
    bench_loss,
    bench_parts,
    bench_ratios,
    bench_scaling,
    bench_soak,
    bench_striping,
    common,
)
from railweave.experiments.errors import OptionError
from railweave.help_texts import examples

OUT = Path("out/bench")

app = typer.Typer(no_args_is_help=True)

for name, (command, epilog) in bench_collectives.COMMANDS.items():
    app.command(name, epilog=epilog)(command)
app.command("failover", epilog=bench_failover.EPILOG)(bench_failover.failover)
app.command("jobs", epilog=bench_jobs.EPILOG)(bench_jobs.jobs)
app.command("loss", epilog=bench_loss.EPILOG)(bench_loss.loss)
app.command("ratios", epilog=bench_ratios.EPILOG)(bench_ratios.ratios)
app.command("scaling", epilog=bench_scaling.EPILOG)(bench_scaling.scaling)
app.command("soak", epilog=bench_soak.EPILOG)(bench_soak.soak)
app.command("striping", epilog=bench_striping.EPILOG)(bench_striping.striping)
app.command("switch", epilog=bench_parts.SWITCH_EXAMPLES)(bench_parts.switch)
app.command("receive", epilog=bench_parts.RECEIVE_EXAMPLES)(bench_parts.receive)
app.command("controller", epilog=bench_parts.CONTROLLER_EXAMPLES)(bench_parts.controller)


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "bench all-reduce --hosts 8 --print-scenario > my.toml",
        "bench --scenario my.toml --json r.json",
    ),
)
def bench(
    context: typer.Context,
    scenario: Annotated[
        Path | None,
        typer.Option(
            help="File of a scenario to measure (JSON, or TOML if its name ends in .toml).", metavar="FILE"
        ),
    ] = None,
    out: common.Out = OUT,
    json_file: common.JsonFile = None,
) -> None:
    """Measure collectives, switches and the controller.

    With --scenario, measure what a file describes. The table is that of `bench all-reduce`.
    """
    with common.one_line_errors():
        if context.invoked_subcommand is not None:
            if (scenario, out, json_file) != (None, OUT, None):
                raise OptionError(
                    f"options before {context.invoked_subcommand}",
                    "options behind the command, or --scenario without a command",
                    "move or omit them",
                )
            return
        if scenario is None:
            raise OptionError("no command", "one, or --scenario", "see railweave bench --help")
        from railweave.experiments.scenario import Scenario  # noqa: PLC0415

        described = Scenario.load(scenario)
        common.check_target(described.switch, described.network)
        bench_collectives.measure(described, out, json_file)
