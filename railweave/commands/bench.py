# SPDX-License-Identifier: Apache-2.0
"""`railweave bench`."""

from __future__ import annotations

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
)

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


@app.callback()
def bench() -> None:
    """Measure collectives, switches and the controller."""
