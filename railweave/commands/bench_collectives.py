# SPDX-License-Identifier: Apache-2.0
"""`railweave bench all-reduce`, `reduce-scatter`, `all-gather` and `broadcast`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError

PLANES = "planes"

Shards = Annotated[
    str,
    typer.Option(
        help="Sizes of all shards together: 4M is one, 1K,4M a list, 1K:16M powers of two (binary)."
    ),
]
Op = Annotated[str, typer.Option(help="sum, max, min or avg.")]
Check = Annotated[bool, typer.Option(help="Check every element of every run against numpy.")]
EachAlone = Annotated[bool, typer.Option("--each-alone", help="Measure every rail alone as well.")]


@dataclass(frozen=True)
class Sweep:
    """The options of one sweep over sizes."""

    collective: str
    topology: str
    hosts: int
    rails: str
    rate: str | None
    loss: str
    sizes: str
    dtype: str
    iters: int
    warmup: int
    shares: str | None
    switch: str
    check: bool
    each_alone: bool
    baseline: str
    out: Path
    json_file: Path | None
    op: str = "sum"  # of those that reduce
    root: int = 0  # of a broadcast


def all_reduce(
    topology: common.Topology = PLANES,
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    loss: common.Loss = "0",
    sizes: common.Sizes = "1K:16M",
    dtype: common.DType = "float32",
    op: Op = "sum",
    iters: common.Iters = 20,
    warmup: common.Warmup = 5,
    shares: common.Shares = None,
    switch: common.SwitchTarget = "embedded",
    check: Check = True,
    each_alone: EachAlone = False,
    baseline: common.Baseline = "",
    out: common.Out = Path("out/bench"),
    json_file: common.JsonFile = None,
) -> None:
    """Sweep sizes of an allreduce: time, bandwidth, share per rail, percent of the physical limit.

    Columns are those of nccl-tests. With --rate 0 the links are unshaped.
    """
    _sweep(
        Sweep(
            "all_reduce",
            topology=topology,
            hosts=hosts,
            rails=rails,
            rate=rate,
            loss=loss,
            sizes=sizes,
            dtype=dtype,
            op=op,
            iters=iters,
            warmup=warmup,
            shares=shares,
            switch=switch,
            check=check,
            each_alone=each_alone,
            baseline=baseline,
            out=out,
            json_file=json_file,
        )
    )


def reduce_scatter(
    topology: common.Topology = PLANES,
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    loss: common.Loss = "0",
    sizes: Shards = "1K:16M",
    dtype: common.DType = "float32",
    op: Op = "sum",
    iters: common.Iters = 20,
    warmup: common.Warmup = 5,
    shares: common.Shares = None,
    switch: common.SwitchTarget = "embedded",
    check: Check = True,
    each_alone: EachAlone = False,
    baseline: common.Baseline = "",
    out: common.Out = Path("out/bench"),
    json_file: common.JsonFile = None,
) -> None:
    """Sweep sizes of a reduce-scatter, as all-reduce does for an allreduce.

    Columns are those of nccl-tests: size is a rank's input (all shards), count its output (one shard).
    """
    _sweep(
        Sweep(
            "reduce_scatter",
            topology=topology,
            hosts=hosts,
            rails=rails,
            rate=rate,
            loss=loss,
            sizes=sizes,
            dtype=dtype,
            op=op,
            iters=iters,
            warmup=warmup,
            shares=shares,
            switch=switch,
            check=check,
            each_alone=each_alone,
            baseline=baseline,
            out=out,
            json_file=json_file,
        )
    )


def all_gather(
    topology: common.Topology = PLANES,
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    loss: common.Loss = "0",
    sizes: Shards = "1K:16M",
    dtype: common.DType = "float32",
    iters: common.Iters = 20,
    warmup: common.Warmup = 5,
    shares: common.Shares = None,
    switch: common.SwitchTarget = "embedded",
    check: Check = True,
    each_alone: EachAlone = False,
    baseline: common.Baseline = "",
    out: common.Out = Path("out/bench"),
    json_file: common.JsonFile = None,
) -> None:
    """Sweep sizes of an allgather, as all-reduce does for an allreduce.

    Columns are those of nccl-tests: size is a rank's output (all shards), count its input (one shard).
    """
    _sweep(
        Sweep(
            "all_gather",
            topology=topology,
            hosts=hosts,
            rails=rails,
            rate=rate,
            loss=loss,
            sizes=sizes,
            dtype=dtype,
            iters=iters,
            warmup=warmup,
            shares=shares,
            switch=switch,
            check=check,
            each_alone=each_alone,
            baseline=baseline,
            out=out,
            json_file=json_file,
        )
    )


def broadcast(
    topology: common.Topology = PLANES,
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    loss: common.Loss = "0",
    sizes: common.Sizes = "1K:16M",
    dtype: common.DType = "float32",
    root: Annotated[int, typer.Option(help="The rank whose tensor is sent to all.")] = 0,
    iters: common.Iters = 20,
    warmup: common.Warmup = 5,
    shares: common.Shares = None,
    switch: common.SwitchTarget = "embedded",
    check: Check = True,
    each_alone: EachAlone = False,
    baseline: common.Baseline = "",
    out: common.Out = Path("out/bench"),
    json_file: common.JsonFile = None,
) -> None:
    """Sweep sizes of a broadcast, as all-reduce does for an allreduce.

    Columns are those of nccl-tests. A run lasts from when all ranks are ready until the last one is done.
    """
    _sweep(
        Sweep(
            "broadcast",
            topology=topology,
            hosts=hosts,
            rails=rails,
            rate=rate,
            loss=loss,
            sizes=sizes,
            dtype=dtype,
            root=root,
            iters=iters,
            warmup=warmup,
            shares=shares,
            switch=switch,
            check=check,
            each_alone=each_alone,
            baseline=baseline,
            out=out,
            json_file=json_file,
        )
    )


def _examples(name: str, *others: str) -> str:
    return "Examples: " + " · ".join(f"railweave bench {name} {options}" for options in others)


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "all-reduce": (
        all_reduce,
        _examples(
            "all-reduce",
            "--sizes 1K:16M",
            "--rails ina --rate 0 --sizes 1K,4M --baseline gloo",
            "--sizes 4M --each-alone --json r.json",
        ),
    ),
    "reduce-scatter": (
        reduce_scatter,
        _examples("reduce-scatter", "--sizes 64K:16M", "--op avg --rails tcp,tcp --json r.json"),
    ),
    "all-gather": (
        all_gather,
        _examples("all-gather", "--sizes 64K:16M", "--rails ina,rdma --each-alone --json r.json"),
    ),
    "broadcast": (
        broadcast,
        _examples("broadcast", "--sizes 64K:16M", "--root 3 --rails ina,tcp --each-alone --json r.json"),
    ),
}  # by name: the function, and the epilogue of its help


def _sweep(given: Sweep) -> None:
    with common.one_line_errors():
        from railweave.experiments.allreduce import report, run  # noqa: PLC0415
        from railweave.experiments.allreduce.loop import Measurement  # noqa: PLC0415

        chosen = common.topology_of(given.topology, given.hosts, given.rails, given.rate, given.switch)
        names = [plane.name for plane in chosen.planes]
        baselines = [name.strip() for name in given.baseline.split(",") if name.strip()]
        chosen, baseline_plane = run.with_baseline_plane(chosen) if baselines else (chosen, "")
        options = run.BenchOptions(
            topology=chosen,
            measurement=Measurement(
                tuple(units.parse_sizes(given.sizes)),
                given.dtype,
                given.op,
                given.iters,
                given.warmup,
                given.check,
                given.collective,
                given.root,
            ),
            out=given.out,
            rails=names,
            switch_target=common.check_target(given.switch, chosen),
            shares=units.parse_shares(given.shares, names),
            loss=units.parse_loss(given.loss, [(plane.name, plane.kind) for plane in chosen.planes]),
            each_alone=given.each_alone,
            baselines=baselines,
            baseline_plane=baseline_plane,
        )
        run.check(options)
        to_stderr = str(given.json_file) == "-"
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
        common.write_result(report.as_json(result), given.json_file, versions=result.versions)
        if not result.ok:
            raise OptionError("wrong elements: see the column #wrong")
