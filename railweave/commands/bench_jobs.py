# SPDX-License-Identifier: Apache-2.0
"""`railweave bench jobs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import ResultError
from railweave.help_texts import examples

EPILOG = examples(
    "bench jobs",
    "bench jobs --jobs 3 --rails ina,tcp --slots 4096",
    "bench jobs --json r.json",
)


def jobs(
    count: Annotated[
        int, typer.Option("--jobs", help="Number of concurrent jobs, each with a rank on every host.")
    ] = 2,
    topology: common.Topology = "planes",
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina",
    rate: common.RateOfTarget = None,
    loss: common.Loss = "0",
    size: common.Size = "1M",
    seconds: common.Seconds = 10.0,
    slots: Annotated[
        int | None,
        typer.Option(help="Slots (chunks in flight) per group, a power of two. Default: the controller's."),
    ] = None,
    switch: common.SwitchTarget = "embedded",
    out: common.Out = Path("out/jobs"),
    json_file: common.JsonFile = None,
) -> None:
    """Run several jobs at once and measure their throughput.

    The jobs use the same links. The table shows each job's throughput and share on each rail, and the reasons
    why rails were not used.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.jobs import run  # noqa: PLC0415

        chosen = common.topology_of(topology, hosts, rails, rate, switch)
        options = run.JobsOptions(
            topology=chosen,
            lab=common.lab_of(
                chosen, folder, switch, loss, controller=["--slots", str(slots)] if slots is not None else []
            ),
            jobs=count,
            bytes=units.parse_size(size),
            seconds=seconds,
        )
        result = common.run(run.run(options, on_phase=common.phase), folder)
        console = common.console(json_file)
        console.print(run.table(result))
        for text in run.utilisations(result):
            console.print(text)
        common.write_result(run.as_json(result), json_file)
        if not result.ok:
            raise ResultError(
                "an element was wrong, or a job completed no call",
                "right elements and completed calls of each job",
                "see the table above",
            )
