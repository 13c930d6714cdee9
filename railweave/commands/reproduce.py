# SPDX-License-Identifier: Apache-2.0
"""`railweave reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError

app = typer.Typer()

DEFAULT = ("N",)  # all papers' figures together would take longer than anybody waits


@app.command(
    "reproduce",
    epilog="Examples: railweave reproduce --quick · railweave reproduce A --quick · "
    "railweave reproduce N1 N4 --runs 10 · railweave reproduce my/figure · railweave reproduce --list",
)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[N1 … T4]",
            help="Figures, or your own folders; N: all of Nezha (default), A: multicast allgather, R: Rina, "
            "S: at scale, T: NetReduce.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, rounds and networks.")] = False,
    runs: Annotated[
        int | None, typer.Option(help="Rounds of each network; N6, N7, A1, A2, R3 and T3 keep theirs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for records, figures and report.html.")] = Path(
        "out/reproduce"
    ),
    only_list: Annotated[
        bool, typer.Option("--list", help="Say what there is, and how long it takes.")
    ] = False,
) -> None:
    """Measure the papers' figures again: plots, and each claim with its verdict, in one report.html.

    Runs that have succeeded are not run again: the same command goes on where it was interrupted, and tries
    failed runs again. Exits with 1 if runs failed. The folder must be new, empty, or of this command.
    """
    with common.one_line_errors():
        from railweave.experiments import reproduce as work  # noqa: PLC0415
        from railweave.experiments.figures import figures  # noqa: PLC0415

        options = work.Options(figures(names or ([] if only_list else DEFAULT)), out, quick, runs)
        if only_list:
            for figure in options.figures:
                minutes = sum(work.seconds(step) for step in options.plan(figure)) / 60
                typer.echo(f"{figure.name}  {figure.claims.title}, about {minutes:.0f} min")
            return
        work.check(options)
        failed = common.run(work.reproduce(options, common.phase), out)
        typer.echo(f"report: {out / 'report.html'}")
        for line in failed:
            typer.echo(f"railweave: {line}", err=True)
        if failed:
            raise OptionError(
                "runs have failed, as above",
                "runs without errors",
                "run the same command again, which repeats them",
            )
