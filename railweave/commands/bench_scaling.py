# SPDX-License-Identifier: Apache-2.0
"""`railweave bench scaling`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments import units
from railweave.experiments.errors import ResultError
from railweave.help_texts import examples

EPILOG = examples(
    "bench scaling --compare gloo --plot scaling.png",
    "bench scaling --hosts 2,4,8,16,32 --rate 20M --sizes 16K,1M --iters 20",
)


def scaling(
    hosts: Annotated[str, typer.Option(help="Numbers of hosts, a list.")] = "2,4,8",
    rails: common.Rails = "ina",
    rate: common.RateOfTarget = None,
    sizes: common.Sizes = "16K",
    dtype: common.DType = "float32",
    iters: common.Iters = 200,
    warmup: common.Warmup = 20,
    switch: common.SwitchTarget = "embedded",
    compare: common.Compare = "",
    plot: common.Plot = None,
    print_scenario: common.PrintScenario = False,
    out: common.Out = Path("out/scaling"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure allreduces with a growing number of hosts.

    Each number of hosts gets a new network. If one switch has too few ports, the hosts are in racks of equal
    size below a spine. The table shows time, and the processor time and memory of a rank.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.allreduce import report, run  # noqa: PLC0415
        from railweave.experiments.figures import drawing  # noqa: PLC0415
        from railweave.experiments.scaling import run as curve  # noqa: PLC0415
        from railweave.experiments.scenario import Workload  # noqa: PLC0415

        work = Workload(tuple(units.parse_sizes(sizes)), dtype=dtype, warmup=warmup, iterations=iters)
        scenarios = [
            run.with_contenders(
                common.scenario_of(f"{count}-hosts", work, curve.topology(count), count, rails, rate, switch),
                baselines=common.names(compare),
            )
            for count in common.counts("--hosts", hosts)
        ]
        if print_scenario:
            common.print_scenario(scenarios)
            return
        run.require(scenarios[0].contenders)
        tell = common.teller(json_file)
        tell(curve.header(scenarios[0]))
        sweeps = common.run(
            run.run_all(scenarios, folder, common.phase, on_row=lambda row: tell(curve.line(row))), folder
        )
        if plot is not None:
            rates = report.rates_text(scenarios[0])
            note = f"{rates}; emulated hosts on one machine; median, bar to p99 of {iters} calls"
            drawing.save(curve.draw(sweeps), note, plot)
        result = curve.as_json(sweeps)
        versions = {name: version for sweep in sweeps for name, version in sweep.versions.items()}
        common.write_result(result, json_file, versions=versions)
        if not result["ok"]:
            raise ResultError(*common.WRONG_ELEMENTS)
