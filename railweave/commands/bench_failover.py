# SPDX-License-Identifier: Apache-2.0
"""`railweave bench failover`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import OptionError

EPILOG = (
    "Examples: railweave bench failover · railweave bench failover --trials 20 --json r.json --plot r.png · "
    "railweave bench failover --rails ina,tcp --hit ina --collective all_gather · "
    "railweave bench failover --rails tcp,tcp --hit tcp1 --faults 'loss one way,flapping' · "
    "railweave bench failover --topology leaf-spine:racks=2,hosts=2,spines=2 --rails ina --trials 20"
)
DTYPES = ("int32", "float32")


def failover(
    topology: common.Topology = "planes",
    hosts: common.Hosts = 4,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    hit: Annotated[str, typer.Option(help="Rails to fail, by name; default: every rail in turn.")] = "",
    trials: common.Trials = 3,
    seed: common.Seed = 1,
    only: Annotated[
        str,
        typer.Option(
            "--faults",
            help="host link down, switch port down, loss one way, loss both ways, queue pair ended "
            "(of RDMA), switch killed, switch frozen, rate cut, flapping; leaf killed, uplink cut, spine "
            "killed, controller restarts (of in-network trees); rank computes, rank killed; default: all, of "
            "trees where there are trunks.",
        ),
    ] = "",
    restarts: Annotated[int, typer.Option(help="Restarts of the controller in one trial.")] = 10,
    collective: Annotated[str, typer.Option(help="all_reduce or all_gather.")] = "all_reduce",
    size: common.Size = "256K",
    dtype: common.DType = "int32",
    deadline: Annotated[
        float, typer.Option(help="Seconds to wait for an error, or for a rail to be readmitted.")
    ] = 20.0,
    switch: common.SwitchTarget = "embedded",
    plot: common.Plot = None,
    out: common.Out = Path("out/failover"),
    json_file: common.JsonFile = None,
) -> None:
    """Inject faults into rails under running collectives: measure pauses, rerouting, readmission, wrong sums.

    Every rank reduces, or gathers, continuously and checks every element. A fault hits one rail at a random
    instant and is repaired after a while; the next fault follows when the rail is in use again.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.failover import report, run  # noqa: PLC0415
        from railweave.experiments.failover.values import FailoverOptions  # noqa: PLC0415
        from railweave.experiments.failover.worker import COLLECTIVES  # noqa: PLC0415

        sizes = units.parse_sizes(size)
        if len(sizes) != 1 or min(trials, restarts) < 1 or deadline <= 0:
            raise OptionError(
                f"--size {size}, --trials {trials}, --restarts {restarts}, --deadline {deadline:g}",
                "one size, 1 or more, 1 or more, and a positive number of seconds",
                "correct the option that differs",
            )
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
            trials=trials,
            seed=seed,
            faults=common.names(only),
            rails=common.names(hit),
            collective=collective,
            bytes=sizes[0],
            dtype=dtype,
            deadline_s=deadline,
            restarts=restarts,
        )
        run.check(options)
        result = common.run(
            run.run(
                options,
                on_phase=common.phase,
                on_trial=lambda trial: typer.echo(f"  {report.line(trial)}", err=True),
            ),
            folder,
        )
        console = common.console(json_file)
        console.print(report.table(result))
        console.print(report.NOTE)
        for text in report.odd(result):
            console.print(text)
        common.write_result(report.as_json(result), json_file, seed=seed)
        if plot is not None and result.curves:
            from railweave.experiments.failover.plot import draw  # noqa: PLC0415
            from railweave.experiments.figures import drawing  # noqa: PLC0415

            curves = {", ".join(hit): asdict(curve) for hit, curve in result.curves.items()}
            drawing.save(draw(curves), report.caption(result), plot)
        if not result.ok:
            raise OptionError(
                "a trial did not end as expected, or an element was wrong",
                "right elements and the expected end in each trial",
                f"see the table above, and the logs in {folder}",
            )
