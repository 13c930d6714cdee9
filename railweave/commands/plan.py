# SPDX-License-Identifier: Apache-2.0
"""`railweave plan`: predict the split of a collective, or the best order of switch upgrades."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError
from railweave.help_texts import examples

if TYPE_CHECKING:
    from rich.console import Console

    from railweave.hosts.prediction import Prediction
    from railweave.hosts.striping import Planner

app = typer.Typer()

EPILOG = examples(
    "plan 1K:64M --costs costs.json",
    "plan 4M --rails ina,tcp --hosts 6",
    "plan 4M --costs costs.json --collective all_gather --json -",
    "plan racks:racks=4,hosts=4,ina=0 --jobs 16x4M,4x1M@h5",
)


@app.command("plan", epilog=EPILOG)
def plan(
    what: Annotated[
        str,
        typer.Argument(
            help="Tensor sizes in bytes (4M, 1K,4M or 1K:16M); with --jobs, a topology as for bench "
            "all-reduce.",
            metavar="SIZES|FABRIC",
        ),
    ],
    costs: Annotated[
        Path | None,
        typer.Option(
            help="File of learnt costs that Communicator.save_costs has written. Default: costs from link "
            "rates."
        ),
    ] = None,
    hosts: Annotated[
        int | None, typer.Option(help="Number of hosts. Default: 4, or that of the file.")
    ] = None,
    rails: Annotated[
        str | None, typer.Option(help=f"{common.RAILS} Default: ina,tcp,rdma, or those of the file.")
    ] = None,
    rate: common.Rate = "100M",
    collective: Annotated[
        str, typer.Option(help="Collective: all_reduce, reduce_scatter, all_gather or broadcast.")
    ] = "all_reduce",
    dtype: Annotated[
        str, typer.Option(help="Element type by its numpy name: float32, bfloat16, int64.")
    ] = "float32",
    op: Annotated[str, typer.Option(help="Reduction: sum, prod, max, min or avg.")] = "sum",
    jobs: Annotated[
        str | None,
        typer.Option(
            help="Jobs by number of ranks, bytes and first host (default: h1): 16x4M,4x1M@h5. Default: plan"
            " a collective, not upgrades."
        ),
    ] = None,
    json_file: common.JsonFile = None,
) -> None:
    """Predict how a collective would be split over the rails.

    The output shows the time of each rail and of each split, the chosen split, and the reason. With --costs,
    the times follow from the costs that a job has learnt, otherwise from the link rates. In a program,
    comm.plan(bytes) returns the same for a running job.

    With --jobs, the command predicts in which order to replace the bridges of a fabric by switches that
    aggregate. The order follows from the time that the jobs gain. Each job makes one call. Name a job twice
    if it calls twice as often.
    """
    with common.one_line_errors():
        if jobs is not None:
            if (costs, hosts, rails) != (None, None, None):
                raise OptionError(
                    "--jobs with --costs, --hosts or --rails",
                    "--jobs with a fabric and --rate only",
                    "omit the others",
                )
            _upgrades(what, jobs, rate, json_file)
            return
        if costs is not None and rails is not None:
            raise OptionError(
                "--costs and --rails", "one option, because --costs names the rails", "omit one of them"
            )
        from railweave.hosts.prediction import predict  # noqa: PLC0415 - help needs none

        planner = _from_file(costs, hosts) if costs is not None else _from_links(rails, rate, hosts)
        predictions = [predict(planner, size, collective, dtype, op) for size in units.parse_sizes(what)]
        console = common.console(json_file)
        if len(predictions) == 1:
            console.print(str(predictions[0]), soft_wrap=True)
        else:
            _print_sweep(predictions, console)
        common.write_json(_as_json(predictions), json_file)


def _from_file(path: Path, hosts: int | None) -> Planner:
    """Return the planner of the kind of job whose costs a file holds; OptionError if there are several."""
    from railweave.hosts import costs_file  # noqa: PLC0415 - help needs none
    from railweave.hosts.decisions import Ledger  # noqa: PLC0415
    from railweave.hosts.striping import StripedRail  # noqa: PLC0415

    jobs = [job for job in costs_file.read(path) if hosts in (None, job.hosts)]
    known = "; ".join(str(job) for job in costs_file.read(path)) or "none"
    if not jobs:
        raise OptionError(
            f"--costs {path}: no costs of {hosts or 'any'} hosts", f"one of: {known}", "choose with --hosts"
        )
    if len(jobs) > 1:
        raise OptionError(
            f"--costs {path}: {len(jobs)} kinds of job", f"one of: {known}", "choose with --hosts"
        )
    rails = [
        StripedRail(rail.name, place, rail.kind, rail.rate_bps) for place, rail in enumerate(jobs[0].rails)
    ]
    return costs_file.planner_for(rails, jobs[0].hosts, Ledger(), costs=str(path))


def _from_links(rails: str | None, rate: str, hosts: int | None) -> Planner:
    """Return a planner that has learnt nothing."""
    from railweave.hosts.costs_file import planner_for  # noqa: PLC0415
    from railweave.hosts.decisions import Ledger  # noqa: PLC0415
    from railweave.hosts.striping import StripedRail  # noqa: PLC0415
    from railweave.topologies.planes import check_rails, plane_names, rate_of_each_plane  # noqa: PLC0415

    kinds = units.parse_rails(rails or "ina,tcp,rdma")
    check_rails(kinds)
    count = 4 if hosts is None else hosts
    if count < 2:
        raise OptionError(f"--hosts {count}", "at least 2", "correct --hosts")
    rates = rate_of_each_plane(units.parse_rates(rate), len(kinds))
    striped = [
        StripedRail(name, place, kind, bps)
        for place, (name, kind, bps) in enumerate(zip(plane_names(kinds), kinds, rates, strict=True))
    ]
    return planner_for(striped, count, Ledger())


def _print_sweep(predictions: list[Prediction], console: Console) -> None:
    """Print one line per size: the chosen split, its time, and the time on each rail alone."""
    from railweave.experiments import tables  # noqa: PLC0415

    first = predictions[0]
    rails = [rail.rail for rail in first.rails]
    rows = []
    for each in predictions:
        chosen = next((split for split in each.splits if split.chosen), None)
        alone = ["-" if rail.alone_us is None else f"{rail.alone_us:.1f}" for rail in each.rails]
        split = ["-", "-", "-"]
        if chosen is not None:
            split = [tables.shares(chosen.shares), f"{chosen.time_us:.1f}", f"{chosen.gain:.1%}"]
        rows.append((str(each.size_bytes), each.state, *split, *alone))
    titles = ("bytes", "state", "split (%)", "time (us)", "gain", *(f"{rail} (us)" for rail in rails))
    what = " ".join(filter(None, (first.collective, first.op, first.dtype)))
    console.print(f"{what}, {first.hosts} hosts; gain: relative to the best rail alone")
    console.print(tables.table(titles, rows, left=3, box=None))
    if first.note:
        console.print(first.note)


def _upgrades(fabric: str, jobs: str, rate: str, json_file: Path | None) -> None:
    """Print the fabric as it is and after each upgrade: the time of one call of each job, and its gain."""
    from railweave.experiments import deployment, tables  # noqa: PLC0415
    from railweave.topologies.named import named  # noqa: PLC0415

    topology = named(fabric, rails=["ina"], rates=units.parse_rates(rate))
    plane = next((plane for plane in topology.planes if plane.kind == "ina"), None)
    if plane is None:
        raise OptionError(
            f"{fabric} has no plane of kind ina", "one, whose switches can aggregate", "name another fabric"
        )
    mix = deployment.parse_jobs(jobs, plane)
    stages = deployment.plan(plane, mix)
    rows = []
    for number, stage in enumerate(stages):
        name = f"{number}. {stage.switch}" if number else "none"
        gain = stages[0].total_s / stage.total_s
        rows.append((name, *map(str, stage.members), f"{1e3 * stage.total_s:.1f}", f"{gain:.2f}"))
    titles = ("upgraded", *(f"{job.name}: members" for job in mix), "time (ms)", "gain")
    console = common.console(json_file)
    console.print("predicted time of one call of each job, alone on the links; gain: relative to no upgrade")
    console.print(tables.table(titles, rows, box=None))
    common.write_json({"jobs": [job.name for job in mix], "stages": [asdict(s) for s in stages]}, json_file)


def _as_json(predictions: list[Prediction]) -> dict[str, Any]:
    return {"predictions": [asdict(each) for each in predictions]}
