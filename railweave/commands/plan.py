# SPDX-License-Identifier: Apache-2.0
"""`railweave plan`: how a collective would be split over the rails, or which switches to upgrade first."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from railweave.hosts.prediction import Prediction
    from railweave.hosts.striping import Planner

app = typer.Typer()

EPILOG = (
    "Examples: railweave plan 1K:64M --costs costs.json · railweave plan 4M --rails ina,tcp --hosts 6 "
    "· railweave plan 4M --costs costs.json --collective all_gather --json - "
    "· railweave plan racks:racks=4,hosts=4,ina=0 --jobs 16x4M,4x1M@h5"
)


@app.command("plan", epilog=EPILOG)
def plan(
    what: Annotated[
        str,
        typer.Argument(
            help="Bytes of the tensor: 4M, 1K,4M, or 1K:16M; with --jobs, a fabric as --topology names it.",
            metavar="SIZES|FABRIC",
        ),
    ],
    costs: Annotated[
        Path | None, typer.Option(help="A file of learnt costs, as Communicator.save_costs writes it.")
    ] = None,
    hosts: Annotated[int | None, typer.Option(help="Number of hosts; default: 4, or the file's.")] = None,
    rails: Annotated[
        str | None, typer.Option(help="Rails without a file, by kind: ina,tcp. Default: ina,tcp,rdma.")
    ] = None,
    rate: Annotated[
        str, typer.Option(help="Rate of their links: 100M, or one per rail: 100M,30M; 0: unknown.")
    ] = "100M",
    collective: Annotated[
        str, typer.Option(help="all_reduce, reduce_scatter, all_gather or broadcast.")
    ] = "all_reduce",
    dtype: Annotated[
        str, typer.Option(help="Element type, as in numpy: float32, bfloat16, int64.")
    ] = "float32",
    op: Annotated[str, typer.Option(help="sum, prod, max, min or avg.")] = "sum",
    jobs: Annotated[
        str | None,
        typer.Option(
            help="Ranks, bytes and first host of each job, h1 by default: 16x4M,4x1M@h5. "
            "Shows which switches of the fabric to upgrade first."
        ),
    ] = None,
    json_file: common.JsonFile = None,
) -> None:
    """Predict how a collective would be split: times per rail and split, the chosen split, and why.

    With --costs, from the costs that a job has learnt; otherwise from the link rates. In a program,
    comm.plan(bytes) returns the same for a running job.

    With --jobs: in which order to replace a fabric's bridges by switches that aggregate, by the time that the
    jobs gain; each makes one call, and a job that calls twice as often is given twice.
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
                "--costs and --rails", "one of them, because --costs names the rails", "omit one of them"
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
    from rich.table import Table  # noqa: PLC0415

    from railweave.hosts.prediction import shares_text  # noqa: PLC0415

    first = predictions[0]
    rails = [rail.rail for rail in first.rails]
    table = Table(
        "bytes", "state", "split", "time (us)", "gain", *(f"{rail} (us)" for rail in rails), box=None
    )
    for each in predictions:
        chosen = next((split for split in each.splits if split.chosen), None)
        alone = ["-" if rail.alone_us is None else f"{rail.alone_us:.1f}" for rail in each.rails]
        row = ["-", "-", "-"]
        if chosen is not None:
            row = [shares_text(chosen.shares), f"{chosen.time_us:.1f}", f"{100 * chosen.gain:.1f} %"]
        table.add_row(str(each.size_bytes), each.state, *row, *alone)
    what = " ".join(filter(None, (first.collective, first.op, first.dtype)))
    console.print(f"{what}, {first.hosts} hosts; gain is over the best rail alone")
    console.print(table)
    if first.note:
        console.print(first.note)


def _upgrades(fabric: str, jobs: str, rate: str, json_file: Path | None) -> None:
    """Print the fabric as it is and after each upgrade: the time of one call of each job, and its gain."""
    from rich.table import Table  # noqa: PLC0415

    from railweave.experiments import deployment  # noqa: PLC0415
    from railweave.topologies.named import named  # noqa: PLC0415

    topology = named(fabric, rails=["ina"], rates=units.parse_rates(rate))
    plane = next((plane for plane in topology.planes if plane.kind == "ina"), None)
    if plane is None:
        raise OptionError(
            f"{fabric} has no plane of kind ina", "one, whose switches can aggregate", "name another fabric"
        )
    mix = deployment.parse_jobs(jobs, plane)
    stages = deployment.plan(plane, mix)
    table = Table("upgraded", *(f"{job.name}: members" for job in mix), "time (ms)", "gain", box=None)
    for number, stage in enumerate(stages):
        name = f"{number}. {stage.switch}" if number else "as it is"
        gain = stages[0].total_s / stage.total_s
        table.add_row(name, *map(str, stage.members), f"{1e3 * stage.total_s:.4g}", f"{gain:.2f}")
    console = common.console(json_file)
    console.print("one call of each job by itself, predicted from links; gain is over the fabric as it is")
    console.print(table)
    common.write_json({"jobs": [job.name for job in mix], "stages": [asdict(s) for s in stages]}, json_file)


def _as_json(predictions: list[Prediction]) -> dict[str, Any]:
    return {"predictions": [asdict(each) for each in predictions]}
