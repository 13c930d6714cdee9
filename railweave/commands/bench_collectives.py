# SPDX-License-Identifier: Apache-2.0
"""`railweave bench all-reduce`, `reduce-scatter`, `all-gather` and `broadcast`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError

Shards = Annotated[
    str,
    typer.Option(
        help="Sizes of all shards together: 4M is one, 1K,4M a list, 1K:16M powers of two (binary)."
    ),
]


@dataclass(frozen=True)
class Sweep:
    """The options of one sweep over sizes, as the commands have them."""

    topology: common.Topology = "planes"
    hosts: common.Hosts = 4
    rails: common.Rails = "ina,tcp,rdma"
    rate: common.Rates = None
    mtu: common.Mtu = common.DEFAULT_MTU
    loss: common.Loss = "0"
    sizes: common.Sizes = "1K:16M"
    dtype: common.DType = "float32"
    op: Annotated[str, typer.Option(help="sum, max, min or avg.")] = "sum"
    root: Annotated[int, typer.Option(help="The rank whose tensor is sent to all.")] = 0
    iters: common.Iters = 20
    warmup: common.Warmup = 5
    rounds: Annotated[
        int, typer.Option(help="Contenders take turns so often, so that a slow minute meets all.", min=1)
    ] = 1
    shares: common.Shares = None
    switch: common.SwitchTarget = "embedded"
    each_alone: Annotated[bool, typer.Option("--each-alone", help="Measure every rail alone as well.")] = (
        False
    )
    baseline: common.Baseline = ""
    control: Annotated[
        bool, typer.Option("--control", help="Also run at half the rate: did links limit it, or processors?")
    ] = False
    out: common.Out = Path("out/bench")
    json_file: common.JsonFile = None


def _command(collective: str, about: str, *without: str, **others: object) -> Callable[..., None]:
    """Return the command of a collective: the options of a sweep, but some, and some of another type."""

    def command(**given: object) -> None:
        _sweep(collective, Sweep(**given))  # type: ignore[arg-type]

    command.__doc__ = about
    command.__annotations__ = get_type_hints(Sweep, include_extras=True) | others
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                each.name, each.kind, default=each.default, annotation=command.__annotations__[each.name]
            )
            for each in inspect.signature(Sweep).parameters.values()
            if each.name not in without
        ]
    )
    return command


def _examples(name: str, *others: str) -> str:
    return "Examples: " + " · ".join(f"railweave bench {name} {options}" for options in others)


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "all-reduce": (
        _command(
            "all_reduce",
            """Sweep sizes of an allreduce: time, bandwidth, share per rail, percent of the physical limit.

            Columns are those of nccl-tests. With --rate 0 the links are unshaped.
            """,
            "root",
        ),
        _examples(
            "all-reduce",
            "--sizes 1K:16M",
            "--rails ina --rate 0 --sizes 1K,4M --baseline gloo",
            "--sizes 1K,4M --each-alone --rounds 5 --json r.json",
        ),
    ),
    "reduce-scatter": (
        _command(
            "reduce_scatter",
            """Sweep sizes of a reduce-scatter, as all-reduce does for an allreduce.

            Columns are those of nccl-tests: size is a rank's input (all shards), count its output (one).
            """,
            "root",
            sizes=Shards,
        ),
        _examples("reduce-scatter", "--sizes 64K:16M", "--op avg --rails tcp,tcp --json r.json"),
    ),
    "all-gather": (
        _command(
            "all_gather",
            """Sweep sizes of an allgather, as all-reduce does for an allreduce.

            Columns are those of nccl-tests: size is a rank's output (all shards), count its input (one).
            """,
            "op",
            "root",
            sizes=Shards,
        ),
        _examples("all-gather", "--sizes 64K:16M", "--rails ina,rdma --each-alone --json r.json"),
    ),
    "broadcast": (
        _command(
            "broadcast",
            """Sweep sizes of a broadcast, as all-reduce does for an allreduce.

            Columns are those of nccl-tests. A run lasts from when all ranks are ready until the last one is
            done.
            """,
            "op",
        ),
        _examples("broadcast", "--sizes 64K:16M", "--root 3 --rails ina,tcp --each-alone --json r.json"),
    ),
}  # by name: the function, and the epilogue of its help


def _sweep(collective: str, given: Sweep) -> None:
    with common.one_line_errors(), common.run_folder(given.out) as folder:
        from railweave.experiments.allreduce import report, run  # noqa: PLC0415
        from railweave.experiments.scenario import Workload  # noqa: PLC0415

        work = Workload(
            tuple(units.parse_sizes(given.sizes)),
            collective,
            given.dtype,
            given.op,
            given.root,
            given.warmup,
            given.iters,
        )
        name = collective.replace("_", "-")
        network = given.topology, given.hosts, given.rails, given.rate, given.switch, given.loss, given.mtu
        scenario = common.scenario_of(name, work, *network)
        scenario = run.with_contenders(
            replace(scenario, repetitions=given.rounds),
            shares=units.parse_shares(given.shares, [plane.name for plane in scenario.network.planes]),
            each_alone=given.each_alone,
            baselines=common.names(given.baseline),
            control=given.control,
        )
        tell = common.teller(given.json_file)
        tell(report.header(scenario))
        sweep = common.run(
            run.run(
                scenario,
                folder,
                on_phase=common.phase,
                on_row=lambda row: tell(report.line(row)),
            ),
            folder,
        )
        for text in (*report.comparisons(sweep), *report.bottlenecks(sweep)):
            tell(f"# {text}")
        common.write_result(report.as_json(sweep), given.json_file, versions=sweep.versions)
        if not sweep.ok:
            raise OptionError(*common.WRONG)
