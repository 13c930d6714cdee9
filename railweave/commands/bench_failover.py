# SPDX-License-Identifier: Apache-2.0
"""`railweave bench failover`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError, ResultError
from railweave.help_texts import examples

EPILOG = examples(
    "bench failover",
    "bench failover --repeat 20 --json r.json --plot r.png",
    "bench failover --rails ina,tcp --hit ina --collective all_gather",
    "bench failover --rails tcp,tcp --hit tcp1 --faults 'loss one way,flapping'",
    "bench failover --topology leaf-spine:racks=2,hosts=2,spines=2 --rails ina --repeat 20",
)
DTYPES = ("int32", "float32")


def failover(
    topology: common.Topology = "planes",
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.RateOfTarget = None,
    hit: Annotated[
        str, typer.Option(help="Names of the rails to fail, a list. Default: every rail.", show_default=False)
    ] = "",
    repeat: common.Repeat = 3,
    seed: common.Seed = 1,
    only: Annotated[
        str,
        typer.Option(
            "--faults",
            help="Names of the faults to inject, a list. Default: all faults, those of trees only where the "
            "topology has links between switches.",
            show_default=False,
        ),
    ] = "",
    restarts: Annotated[
        int, typer.Option(help="Number of restarts of the controller in one trial.", min=1)
    ] = 10,
    collective: Annotated[
        str, typer.Option(help="Collective to call: all_reduce or all_gather.")
    ] = "all_reduce",
    size: common.Size = "256K",
    dtype: common.DType = "int32",
    deadline: Annotated[
        float, typer.Option(help="Longest wait in seconds for an error, or until a rail is readmitted.")
    ] = 20.0,
    switch: common.SwitchTarget = "embedded",
    plot: common.Plot = None,
    out: common.Out = Path("out/failover"),
    json_file: common.JsonFile = None,
) -> None:
    """Inject faults into rails and measure the recovery.

    Every rank calls the collective continuously and checks every element. A fault hits one rail at a random
    instant and is repaired after a while. The next fault follows when the rail is in use again. The table
    shows pauses, the times until calls use other rails and until the rail is readmitted, and wrong elements.

    Faults of rails: host link down, switch port down, loss one way, loss both ways, queue pair ended (of
    RDMA), switch killed, switch frozen, rate cut, flapping.

    Faults of trees: leaf killed, uplink cut, spine killed, controller restarts.

    Faults of ranks: rank computes, rank killed.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.failover import report, run  # noqa: PLC0415
        from railweave.experiments.failover.values import COLLECTIVES, FailoverOptions  # noqa: PLC0415

        if deadline <= 0:
            raise OptionError(f"--deadline {deadline:g}", "more than 0 seconds", "correct --deadline")
        if collective not in COLLECTIVES:
            raise OptionError(
                f"--collective {collective}", f"one of {', '.join(COLLECTIVES)}", "correct the name"
            )
        if dtype not in DTYPES:
            raise OptionError(f"--dtype {dtype}", f"one of {', '.join(DTYPES)}", "correct the name")
        chosen = common.topology_of(topology, hosts, rails, rate, switch)
        options = FailoverOptions(
            topology=chosen,
            lab=common.lab_of(chosen, folder, switch),
            trials=repeat,
            seed=seed,
            faults=common.names(only),
            rails=common.names(hit),
            collective=collective,
            bytes=units.parse_size(size),
            dtype=dtype,
            deadline_s=deadline,
            restarts=restarts,
        )
        run.check(options)
        result = common.run(
            run.run(
                options,
                on_phase=common.phase,
                on_trial=lambda trial: common.phase(report.line(trial)),
            ),
            folder,
        )
        console = common.console(json_file)
        console.print(report.table(result))
        console.print(report.NOTE)
        for text in report.odd(result):
            console.print(text)
        common.write_result(report.as_json(result), json_file, seed=seed)
        if plot is not None and (curves := report.curves(result)):
            from railweave.experiments.figures import drawing  # noqa: PLC0415

            drawing.save(report.draw(curves), report.caption(result), plot)
        if not result.ok:
            raise ResultError(
                "a trial did not end as expected, or an element was wrong",
                "right elements and the expected end in each trial",
                f"see the table above, and the logs in {folder}",
            )
