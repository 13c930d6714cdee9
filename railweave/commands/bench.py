# SPDX-License-Identifier: Apache-2.0
"""`railweave bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import (
    bench_failover,
    bench_faults,
    bench_jobs,
    bench_loss,
    bench_scaling,
    bench_soak,
    bench_switch,
    common,
)
from railweave.experiments import units
from railweave.experiments.errors import OptionError

app = typer.Typer(no_args_is_help=True)

app.command("switch", epilog=bench_switch.EXAMPLES)(bench_switch.switch)
app.command("faults", epilog=bench_faults.EPILOG)(bench_faults.faults)
app.command("failover", epilog=bench_failover.EPILOG)(bench_failover.failover)
app.command("jobs", epilog=bench_jobs.EPILOG)(bench_jobs.jobs)
app.command("loss", epilog=bench_loss.EPILOG)(bench_loss.loss)
app.command("scaling", epilog=bench_scaling.EPILOG)(bench_scaling.scaling)
app.command("soak", epilog=bench_soak.EPILOG)(bench_soak.soak)

PLANES = "planes"


@app.callback()
def bench() -> None:
    """Measure collectives on a topology of Mininet hosts."""


@app.command(
    "all-reduce",
    epilog="Examples: railweave bench all-reduce --sizes 1K:16M · "
    "railweave bench all-reduce --rails ina --rate 0 --sizes 1K,4M --baseline gloo · "
    "railweave bench all-reduce --sizes 4M --each-alone --json r.json",
)
def all_reduce(
    topology: common.Topology = PLANES,
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    loss: common.Loss = "0",
    sizes: Annotated[
        str, typer.Option(help="4M is one size, 1K,4M a list, 1K:16M powers of two (binary).")
    ] = "1K:16M",
    dtype: Annotated[str, typer.Option(help="float32 or int32.")] = "float32",
    op: Annotated[str, typer.Option(help="sum, max, min or avg.")] = "sum",
    iters: Annotated[int, typer.Option(help="Timed runs of each size.")] = 20,
    warmup: Annotated[int, typer.Option(help="Runs before these.")] = 5,
    shares: common.Shares = None,
    switch: common.SwitchTarget = "embedded",
    check: Annotated[bool, typer.Option(help="Check every element of every run against numpy.")] = True,
    each_alone: Annotated[
        bool, typer.Option("--each-alone", help="Measure every rail alone as well.")
    ] = False,
    baseline: Annotated[str, typer.Option(help="Run peers on the same hosts: gloo.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("out/bench"),
    json_file: common.JsonFile = None,
) -> None:
    """Sweep sizes of an allreduce: time, bandwidth, share per rail, percent of the physical limit.

    Columns are those of nccl-tests. With --rate 0 the links are unshaped.
    """
    with common.one_line_errors():
        from railweave.experiments.allreduce import report, run  # noqa: PLC0415
        from railweave.experiments.allreduce.loop import Measurement  # noqa: PLC0415

        chosen = common.topology_of(topology, hosts, rails, rate, switch)
        names = [plane.name for plane in chosen.planes]
        baselines = [name.strip() for name in baseline.split(",") if name.strip()]
        chosen, baseline_plane = run.with_baseline_plane(chosen) if baselines else (chosen, "")
        options = run.BenchOptions(
            topology=chosen,
            measurement=Measurement(tuple(units.parse_sizes(sizes)), dtype, op, iters, warmup, check),
            out=out,
            rails=names,
            switch_target=common.check_target(switch, chosen),
            shares=units.parse_shares(shares, names),
            loss=units.parse_loss(loss, [(plane.name, plane.kind) for plane in chosen.planes]),
            each_alone=each_alone,
            baselines=baselines,
            baseline_plane=baseline_plane,
        )
        run.check(options)
        to_stderr = str(json_file) == "-"
        typer.echo(report.header(options), err=to_stderr)
        result = common.run(
            run.run(
                options,
                on_phase=lambda text: typer.echo(f"# {text}", err=True),
                on_row=lambda row: typer.echo(report.line(row), err=to_stderr),
            )
        )
        for text in report.comparisons(result):
            typer.echo(f"# {text}", err=to_stderr)
        common.write_json(report.as_json(result), json_file)
        if not result.ok:
            raise OptionError("wrong elements: see the column #wrong")
