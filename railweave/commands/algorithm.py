# SPDX-License-Identifier: Apache-2.0
"""`railweave algorithm`: make, compile and check in-network algorithms."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from railweave import outputs
from railweave.commands import common
from railweave.errors import WRONG
from railweave.help_texts import examples

if TYPE_CHECKING:
    from railweave.sdk.check import Outcome
    from railweave.sdk.library import Algorithm

app = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="Name of an algorithm, or the path of its folder with a slash: ./mine.")
]


@app.callback(epilog=examples("algorithm new mine", "algorithm check ./mine"))
def algorithm() -> None:
    """Make, compile and check in-network algorithms.

    An algorithm is a folder: a P4 program, its table entries, and the endpoint of a rank.
    """


@app.command("list", epilog=examples("algorithm list"))
def list_command() -> None:
    """List the algorithms that are installed."""
    from railweave import sdk  # noqa: PLC0415

    with common.one_line_errors():
        for name in sdk.names():
            manifest = sdk.find(name).manifest
            typer.echo(f"{name:12} {manifest.summary}" + (f" ({manifest.paper})" if manifest.paper else ""))


@app.command("new", epilog=examples("algorithm new mine"))
def new_command(
    path: Annotated[Path, typer.Argument(help="Path of the new folder. Its name is the algorithm's name.")],
) -> None:
    """Make the folder of a new algorithm.

    The folder has a working sum. Change it, compile it and check it.
    """
    from railweave.sdk.new import make  # noqa: PLC0415

    with common.one_line_errors():
        for file in make(path):
            typer.echo(file)
        typer.echo(f"Next: railweave algorithm check {_as_path(path)}")


@app.command("compile", epilog=examples("algorithm compile ./mine"))
def compile_command(name: Name) -> None:
    """Compile an algorithm's P4 program with p4c-bm2-ss.

    The output goes to the folder `build` of the algorithm, a program for each number of lanes.
    """
    from railweave import sdk  # noqa: PLC0415
    from railweave.sdk.compile import compile_algorithm  # noqa: PLC0415

    with common.one_line_errors():
        for artifact in compile_algorithm(sdk.find(name)):
            typer.echo(f"{artifact.json_path}  {artifact.lanes} lanes per packet")


@app.command("check", epilog=examples("algorithm check ./mine", "algorithm check atp --schedules 10000"))
def check_command(
    name: Name,
    schedules: Annotated[int, typer.Option(help="Number of random schedules.", min=1)] = 200,
    seed: common.Seed = 0,
    lab: Annotated[
        bool,
        typer.Option("--lab", help="Also run 50 calls in a lab, and 50 more with a loss of 1 %. Needs root."),
    ] = False,
    out: common.Out = Path("out"),
) -> None:
    """Run an algorithm under random schedules, and check every result.

    The schedules have the seeds from --seed on.

    Hosts, links and switches run in this process, in virtual time. The switches run the compiled program.
    Links lose, repeat and reorder packets. Ranks start late and die, and jobs share a switch. Switches
    restart if the manifest says that calls survive it. A failing schedule is made as simple as possible.
    """
    from railweave import sdk  # noqa: PLC0415
    from railweave.sdk.check import explore, simplified  # noqa: PLC0415
    from railweave.sdk.compile import require_current  # noqa: PLC0415

    with common.one_line_errors(), contextlib.ExitStack() as stack:
        folder = stack.enter_context(common.run_folder(out)) if lab else None
        found = sdk.find(name)
        lanes = min(found.manifest.lanes)
        found.artifact(lanes)
        require_current(found)
        outcomes: list[Outcome] = []
        for outcome in explore(found, range(seed, seed + schedules), lanes):
            outcomes.append(outcome)
            common.progress.show(f"{len(outcomes)} of {schedules} schedules", often=True)
        common.progress.clear()
        _report(found, outcomes)
        failed = [outcome for outcome in outcomes if outcome.failure]
        if failed:
            typer.echo(f"seed {failed[0].seed} fails: {failed[0].failure}")
            simple = simplified(found, failed[0], lanes)
            typer.echo(f"it still fails with {simple.conditions}: {simple.failure}")
            typer.echo(
                f"again: railweave algorithm check {shlex.quote(name)} --schedules 1 --seed {simple.seed}"
            )
            raise typer.Exit(WRONG)
        if folder:
            _check_in_labs(name, seed, folder)


def _check_in_labs(name: str, seed: int, folder: Path) -> None:
    from railweave.experiments.algorithm_lab import Calls, run  # noqa: PLC0415

    for what, impair, part in (("without faults", "", "quiet"), ("with loss of 1 %", "loss=0.01", "loss")):
        common.phase(f"a lab {what}")
        asked = Calls(impair=impair, seed=seed)
        result = common.run(run(name, asked, folder / part), folder)
        rate = 32 * asked.elements * result.calls / asked.hosts / result.seconds
        typer.echo(
            f"lab {what}: {result.calls} right results on {asked.hosts} hosts, {result.resends} packets "
            f"again, {rate / 1e6:.1f} Mbit/s of numbers"
        )


def _report(found: Algorithm, outcomes: list[Outcome]) -> None:
    table = Table("schedules with", "run", "failed", box=None)
    for text, holds in (
        (
            "no fault",
            lambda c: not (c.loss or c.duplicate or c.reorder or c.restart or c.death or c.anew),
        ),
        ("loss up to 1 %", lambda c: 0 < c.loss <= 0.01),
        ("loss of 5 to 20 %", lambda c: c.loss > 0.01),
        ("repeated packets", lambda c: c.duplicate > 0),
        ("reordered packets", lambda c: c.reorder > 0),
        ("ranks up to 0.3 s late", lambda c: c.apart_ms > 1),
        ("several jobs", lambda c: c.jobs > 1),
        ("restarts of switches", lambda c: c.restart),
        ("death of a rank", lambda c: c.death),
        ("ranks that begin again", lambda c: c.anew),
        ("zeros in most blocks", lambda c: c.density < 0.5),
    ):
        chosen = [outcome for outcome in outcomes if holds(outcome.conditions)]
        if chosen:
            table.add_row(text, str(len(chosen)), str(sum(bool(outcome.failure) for outcome in chosen)))
    table.add_row("all", str(len(outcomes)), str(sum(bool(outcome.failure) for outcome in outcomes)))
    outputs.console(None).print(table)
    counts = sum((outcome.counts for outcome in outcomes), Counter())
    if counts["bytes"]:
        sent = counts["sent"] / counts["bytes"]
        typer.echo(f"{counts['results']} results were right")
        typer.echo(f"hosts sent {sent:.2f} bytes of numbers per byte of a rank's input")
    worst = max((outcome.worst for outcome in outcomes), default=0.0)
    if worst:
        typer.echo(f"greatest error of float32: {worst:.2f} of the bound that the algorithm states")


def _as_path(path: Path) -> str:
    return shlex.quote(str(path) if "/" in str(path) else f"./{path}")
