# SPDX-License-Identifier: Apache-2.0
"""`railweave bench all-reduce`, `reduce-scatter`, `all-gather` and `broadcast`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import ResultError
from railweave.help_texts import examples

if TYPE_CHECKING:
    from railweave.experiments.scenario import Scenario

Shards = Annotated[
    str,
    typer.Option(
        help="Sizes of all shards together in bytes, with binary suffixes: one (4M), a list (1K,4M) or "
        "powers of two (1K:16M)."
    ),
]


@dataclass(frozen=True)
class Sweep:
    """The options of one sweep over sizes, as on the command line."""

    topology: common.Topology = "planes"
    hosts: common.Hosts = 4
    rails: common.Rails = "ina,tcp,rdma"
    rate: common.RateOfTarget = None
    mtu: common.Mtu = common.DEFAULT_MTU
    loss: common.Loss = "0"
    sizes: common.Sizes = "1K:16M"
    dtype: common.DType = "float32"
    op: Annotated[str, typer.Option(help="Reduction: sum, max, min or avg.")] = "sum"
    root: Annotated[int, typer.Option(help="Rank whose tensor is sent to all ranks.")] = 0
    iters: common.Iters = 20
    warmup: common.Warmup = 5
    repeat: common.Repeat = 1
    shares: common.Shares = None
    switch: common.SwitchTarget = "embedded"
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Let input and output share memory, as far as the collective allows."
        ),
    ] = False
    verify: Annotated[
        str,
        typer.Option(
            help="Calls whose results are compared: each, or last (calls with other inputs after the timed "
            "ones). Default: last; with --loss, each."
        ),
    ] = ""
    each_alone: Annotated[bool, typer.Option("--each-alone", help="Also measure every rail alone.")] = False
    compare: common.Compare = ""
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Also run at half the link rate, to tell whether links or processors limit."
        ),
    ] = False
    print_scenario: common.PrintScenario = False
    out: common.Out = Path("out/bench")
    json_file: common.JsonFile = None


def _command(collective: str, about: str, *without: str, **others: object) -> Callable[..., None]:
    """Return the command of a collective: a sweep's options except `without`, with the types `others`."""

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
    return examples(*(f"bench {name} {options}" for options in others))


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "all-reduce": (
        _command(
            "all_reduce",
            """Measure allreduces of several sizes.

            The table shows the time of a call (mean, median and 99th percentile), the bandwidth (algbw and
            busbw as in nccl-tests), the percentage of the physical limit, and the share of each rail.
            """,
            "root",
        ),
        _examples(
            "all-reduce",
            "--sizes 1K:16M",
            "--rails ina --rate 0 --sizes 1K,4M --compare gloo",
            "--sizes 1K,4M --each-alone --repeat 5 --json r.json",
        ),
    ),
    "reduce-scatter": (
        _command(
            "reduce_scatter",
            """Measure reduce-scatters of several sizes.

            The table is that of `bench all-reduce`. A size is the input of a rank, which is all shards.
            """,
            "root",
            sizes=Shards,
        ),
        _examples("reduce-scatter", "--sizes 64K:16M", "--op avg --rails tcp,tcp --json r.json"),
    ),
    "all-gather": (
        _command(
            "all_gather",
            """Measure allgathers of several sizes.

            The table is that of `bench all-reduce`. A size is the output of a rank, which is all shards.
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
            """Measure broadcasts of several sizes.

            The table is that of `bench all-reduce`. A call's time lasts from the instant when all ranks are
            ready until the last rank is done.
            """,
            "op",
            "in_place",
        ),
        _examples("broadcast", "--sizes 64K:16M", "--root 3 --rails ina,tcp --each-alone --json r.json"),
    ),
}  # by name: the function and the examples of its help


def _sweep(collective: str, given: Sweep) -> None:
    with common.one_line_errors():
        from railweave.experiments.allreduce import run  # noqa: PLC0415
        from railweave.experiments.scenario import Workload  # noqa: PLC0415

        work = Workload(
            tuple(units.parse_sizes(given.sizes)),
            collective,
            given.dtype,
            given.op,
            given.root,
            given.warmup,
            given.iters,
            in_place=given.in_place,
            verify=given.verify,
        )
        name = collective.replace("_", "-")
        network = given.topology, given.hosts, given.rails, given.rate, given.switch, given.loss, given.mtu
        scenario = common.scenario_of(name, work, *network)
        scenario = run.with_contenders(
            replace(scenario, repetitions=given.repeat),
            shares=units.parse_shares(given.shares, [plane.name for plane in scenario.network.planes]),
            each_alone=given.each_alone,
            baselines=common.names(given.compare),
            control=given.control,
        )
        if given.print_scenario:
            common.print_scenario([scenario])
        else:
            measure(scenario, given.out, given.json_file)


def measure(scenario: Scenario, out: Path, json_file: Path | None) -> None:
    """Run a scenario, and print the rows of all its contenders."""
    with common.run_folder(out) as folder:
        from railweave.experiments import tables  # noqa: PLC0415
        from railweave.experiments.allreduce import report, run  # noqa: PLC0415

        run.require(scenario.contenders)
        tell = common.teller(json_file)
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
        if texts := (*report.comparisons(sweep), *report.bottlenecks(sweep)):
            tell(tables.notes(*texts))
        common.write_result(report.as_json(sweep), json_file, seed=scenario.seed, versions=sweep.versions)
        if not sweep.ok:
            raise ResultError(*common.WRONG_ELEMENTS)
