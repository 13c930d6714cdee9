# SPDX-License-Identifier: Apache-2.0
"""`railweave demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units

app = typer.Typer()


@app.command(
    "demo",
    cls=common.LiveCommand,
    epilog="Examples: railweave demo · railweave demo --rails ina,tcp --rate 50M · "
    "railweave demo --loss 0.01 --json r.json · railweave demo --topology leaf-spine:racks=2,hosts=2",
)
def demo(
    topology: common.Topology = "planes",
    hosts: common.Hosts = 4,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 100,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rates = None,
    mtu: common.Mtu = common.DEFAULT_MTU,
    loss: common.Loss = "0",
    shares: common.Shares = None,
    switch: common.SwitchTarget = "embedded",
    seed: Annotated[int, typer.Option(help="Seed of the initial model and the order of images.", min=0)] = 0,
    out: Annotated[
        Path, typer.Option(help="Each run makes a folder in it, for logs, timeline and trace.")
    ] = Path("out/demo"),
    live: common.Live = None,
    json_file: common.JsonFile = None,
) -> None:
    """Train a small real model on Mininet hosts, with gradients all-reduced over three rails at once.

    A multilayer perceptron of about one million parameters learns scikit-learn's handwritten digits; one rail
    is summed by a P4 program in the switch. At the end the result is compared with the same training in one
    process, and the agents' byte counts with those of the kernel and the switch.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.training import report, run  # noqa: PLC0415
        from railweave.experiments.training.model import TrainingOptions  # noqa: PLC0415
        from railweave.experiments.training.progress import TrainingProgress  # noqa: PLC0415

        chosen = common.topology_of(topology, hosts, rails, rate, switch, mtu)
        names = [plane.name for plane in chosen.planes]
        options = run.DemoOptions(
            topology=chosen,
            training=TrainingOptions(steps=steps, seed=seed),
            lab=common.lab_of(chosen, folder, switch, loss),
            shares=units.parse_shares(shares, names),
            live=live,
        )
        console = common.console(json_file)
        with TrainingProgress(console, steps, names) as progress:
            result = common.run(run.run(options, progress.phase, progress.step, console.print), folder)
        report.print_report(result, console)
        for what, path in report.write_files(result).items():
            console.print(f"{what}: {path}", soft_wrap=True)
        console.print(report.summary(result), style="bold", soft_wrap=True)
        common.write_result(report.as_json(result), json_file, seed=seed)
        if not result.ok:
            raise typer.Exit(1)
