# SPDX-License-Identifier: Apache-2.0
"""`railweave demo`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.errors import WRONG
from railweave.experiments import units
from railweave.help_texts import examples

app = typer.Typer()


@app.command(
    "demo",
    cls=common.LiveCommand,
    epilog=examples(
        "demo",
        "demo --rails ina,tcp --rate 50M",
        "demo --loss 0.01 --json r.json",
        "demo --topology leaf-spine:racks=2,hosts=2",
    ),
)
def demo(
    topology: common.Topology = "planes",
    hosts: common.Hosts = 4,
    steps: Annotated[int, typer.Option(help="Number of training steps.")] = 100,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.RateOfTarget = None,
    mtu: common.Mtu = common.DEFAULT_MTU,
    loss: common.Loss = "0",
    shares: common.Shares = None,
    switch: common.SwitchTarget = "embedded",
    seed: common.Seed = 0,
    out: common.Out = Path("out/demo"),
    since: Annotated[
        float | None,
        typer.Option(
            help="Unix time from which the total until the first training step is counted. Default: the "
            "start of this command.",
            show_default=False,
            hidden=True,
        ),
    ] = None,
    live: common.Live = None,
    json_file: common.JsonFile = None,
) -> None:
    """Train a model on Mininet hosts over three rails at once.

    The model is a multilayer perceptron of about one million parameters, which learns scikit-learn's
    handwritten digits. Each host computes on a part of the batch, and all_reduce averages the gradients. A P4
    program in the switch sums the part of the in-network rail.

    At the end the command repeats the training in one process and compares the parameters. It also compares
    the agents' byte counts with those of the kernel and the switch. Exits with 1 if one of them disagrees.
    """
    began = time.time()
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.training import report, run  # noqa: PLC0415
        from railweave.experiments.training.model import TrainingOptions  # noqa: PLC0415

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

        def on_step(step: run.Step) -> None:
            if step.number == 0:
                for line in report.opening_lines(step, began, began if since is None else since):
                    common.note(typer.style(line, bold=True))
            common.phase(report.step_line(step, steps, names), often=step.number + 1 < steps)

        result = common.run(run.run(options, common.phase, on_step, common.note), folder)
        report.print_report(result, console)
        for what, path in report.write_files(result).items():
            console.print(f"{what}: {path}", soft_wrap=True)
        console.print(report.summary(result), style="bold", soft_wrap=True)
        common.write_result(report.as_json(result), json_file, seed=seed)
        if not result.ok:
            raise typer.Exit(WRONG)
