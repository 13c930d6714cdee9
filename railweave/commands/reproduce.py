# SPDX-License-Identifier: Apache-2.0
"""`railweave reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import ResultError
from railweave.help_texts import examples

app = typer.Typer()

DEFAULT = ("N",)  # the figures of all papers together take too long


@app.command(
    "reproduce",
    epilog=examples(
        "reproduce --quick",
        "reproduce A --quick",
        "reproduce N1 N4 --repeat 10",
        "reproduce my/figure",
        "reproduce --list",
    ),
)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[N1 … T4]",
            help="Names of figures, or folders of your own; a letter means all figures of a paper: N Nezha "
            "(default), A multicast allgather, R Rina, S scale, T NetReduce.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure fewer sizes, rounds and networks.")] = False,
    repeat: Annotated[int | None, common.REPEAT] = None,
    out: Annotated[Path, typer.Option(help="Folder for records, figures and report.html.")] = Path(
        "out/reproduce"
    ),
    only_list: Annotated[
        bool, typer.Option("--list", help="List the figures and how long each takes, then exit.")
    ] = False,
) -> None:
    """Measure the papers' figures again and judge their claims.

    The result is report.html, with a plot of each figure and a verdict on each claim. An interrupted command
    continues when you start it again: runs that have succeeded are kept, and failed runs are repeated.

    Each figure has its own number of repetitions. --repeat changes it, except in N6, N7, A1, A2, R3 and T3.

    The output folder must be new, empty, or one that this command has made. Exits with 1 if a run failed or a
    claim is not reproduced.
    """
    with common.one_line_errors():
        from railweave.experiments import reproduce as work  # noqa: PLC0415
        from railweave.experiments.claims import NOT_REPRODUCED  # noqa: PLC0415
        from railweave.experiments.figures import figures  # noqa: PLC0415
        from railweave.experiments.records import Records, counted  # noqa: PLC0415
        from railweave.topologies.lab.namespaces import require_tools  # noqa: PLC0415

        options = work.Options(figures(names or ([] if only_list else DEFAULT)), out, quick, repeat)
        if only_list:
            for figure in options.figures:
                minutes = sum(work.seconds(step) for step in options.plan(figure)) / 60
                typer.echo(f"{figure.name}  {figure.title}, about {max(minutes, 1):.0f} min")
            return
        work.check(options)
        failed = common.run(work.reproduce(options, common.phase), out)
        typer.echo(f"report: {out / 'report.html'}")
        for line in failed:
            typer.echo(f"railweave: {line}", err=True)
        if failed:
            require_tools()
            raise ResultError(
                "runs have failed, as above",
                "runs without errors",
                "run the same command again, which repeats them",
            )
        every = counted(Records(out / "records").read())
        entries = [work.entry(options, figure, every) for figure in options.figures]
        if missed := sum(entry.counts[NOT_REPRODUCED] for entry in entries):
            raise ResultError(
                f"claims that are not reproduced: {missed}", "none", "read the reasons in the report"
            )
