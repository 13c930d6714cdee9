# SPDX-License-Identifier: Apache-2.0
"""`railweave bench soak`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError, ResultError
from railweave.help_texts import examples

EPILOG = examples(
    "bench soak --seconds 3600 --seed 7",
    "bench soak --hosts 3 --rate 20M & tail -F out/soak/latest/soak.jsonl",
)


def soak(
    topology: common.Topology = "planes",
    hosts: common.Hosts = 3,
    rails: common.Rails = "ina,tcp,rdma",
    rate: common.Rate = "50M",
    seconds: common.Seconds = 3600.0,
    seed: common.Seed = 1,
    largest: Annotated[int, typer.Option(help="Size of the largest tensor in elements.")] = 4 << 20,
    deadline: Annotated[float, typer.Option(help="Time limit of a call, in seconds.")] = 60.0,
    faults: Annotated[bool, typer.Option(help="Inject faults into the rails.")] = True,
    switch: common.SwitchTarget = "embedded",
    out: common.Out = Path("out/soak"),
    json_file: common.JsonFile = None,
) -> None:
    """Run random collectives for a long time while rails fail.

    Sizes, element types and operations are random, and every element of every result is checked. A call must
    end within 3 times its time on the rails that are up, plus 200 ms for each fault, plus the time that its
    ranks waited for a processor. The record soak.jsonl has one line per event. Ctrl-C ends the run and prints
    the summary.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.soak.run import SoakOptions, run  # noqa: PLC0415
        from railweave.experiments.soak.tally import Tally  # noqa: PLC0415

        if seconds <= 0 or largest < 1 or deadline <= 0:
            raise OptionError(
                f"--seconds {seconds:g}, --largest {largest}, --deadline {deadline:g}",
                "positive numbers",
                "correct the options",
            )
        chosen = common.topology_of(topology, hosts, rails, rate, switch)
        options = SoakOptions(
            topology=chosen,
            lab=common.lab_of(chosen, folder, switch),
            seconds=seconds,
            seed=seed,
            largest=largest,
            deadline_s=deadline,
            faults=faults,
        )
        tally = Tally()
        try:
            common.run(run(options, tally, on_phase=common.phase), folder)
        finally:
            if tally.begun:
                common.console(json_file).print(tally.table())
                common.write_result(tally.summary(), json_file, seed=seed)
        if failed := tally.failed():
            raise ResultError(failed, "none of these", f"read the logs in {folder}")
