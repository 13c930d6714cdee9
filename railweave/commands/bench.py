# SPDX-License-Identifier: Apache-2.0
"""`railweave bench`."""

from __future__ import annotations

import typer

from railweave.commands import (
    bench_collectives,
    bench_controller,
    bench_failover,
    bench_jobs,
    bench_loss,
    bench_ratios,
    bench_receive,
    bench_scaling,
    bench_soak,
    bench_striping,
    bench_switch,
)

app = typer.Typer(no_args_is_help=True)

for name, (command, epilog) in bench_collectives.COMMANDS.items():
    app.command(name, epilog=epilog)(command)
app.command("switch", epilog=bench_switch.EXAMPLES)(bench_switch.switch)
app.command("controller", epilog=bench_controller.EPILOG)(bench_controller.controller)
app.command("failover", epilog=bench_failover.EPILOG)(bench_failover.failover)
app.command("jobs", epilog=bench_jobs.EPILOG)(bench_jobs.jobs)
app.command("loss", epilog=bench_loss.EPILOG)(bench_loss.loss)
app.command("ratios", epilog=bench_ratios.EPILOG)(bench_ratios.ratios)
app.command("receive", epilog=bench_receive.EXAMPLES)(bench_receive.receive)
app.command("scaling", epilog=bench_scaling.EPILOG)(bench_scaling.scaling)
app.command("soak", epilog=bench_soak.EPILOG)(bench_soak.soak)
app.command("striping", epilog=bench_striping.EPILOG)(bench_striping.striping)


@app.callback()
def bench() -> None:
    """Measure collectives, switches and the controller."""
