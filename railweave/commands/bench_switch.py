# SPDX-License-Identifier: Apache-2.0
"""`railweave bench switch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError
from railweave.help_texts import examples
from railweave.p4src.artifacts import AGGREGATION, PROFILES

if TYPE_CHECKING:
    from rich.console import Console

    from railweave.experiments.switch_speed.run import SwitchSpeed

BUILT = ", ".join(map(str, PROFILES[AGGREGATION]))
EXAMPLES = examples(
    "bench switch --vs bmv2",
    "bench switch --lanes 64 --workers 4",
    "bench switch --engine-only --json -",
)


def switch(
    lanes: Annotated[int, typer.Option(help=f"Number of lanes (int32) per packet: {BUILT}.")] = 256,
    workers: Annotated[int, typer.Option(help="Number of hosts that contribute to every sum.", min=1)] = 2,
    seconds: Annotated[
        float, typer.Option(help="Duration of the load on each target in seconds.", min=0.1)
    ] = 3.0,
    versus: Annotated[
        str,
        typer.Option(
            "--vs",
            help="Targets to compare with, a list of echo and bmv2. Default: none.",
            show_default=False,
        ),
    ] = "",
    engine_only: Annotated[
        bool, typer.Option("--engine-only", help="Measure only the engine, with packets in memory.")
    ] = False,
    out: common.Out = Path("out/bench-switch"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure the packets per second of the P4 switch.

    The switch runs the aggregation program. For the engine alone, the packets are in memory, and the table
    shows nanoseconds of processor time per packet, with hot and with cold caches.

    End to end, the switch is a process on veth links. A native generator sends contributions in a closed loop
    and checks every result. It tries several windows (chunks in flight per worker) and reports the best. With
    --vs echo, packets return unchanged through the same ports without an engine, which is the limit of packet
    I/O. This part needs root.

    Exits with 1 if a sum is wrong.
    """
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments.switch_speed import run  # noqa: PLC0415
        from railweave.experiments.switch_speed.alone import WrongResult  # noqa: PLC0415

        console = common.console(json_file)
        options = run.Options(lanes, workers, seconds, versus, engine_only, folder)
        try:
            result = common.run(run.run(options, common.phase), folder)
        except WrongResult as wrong:
            raise OptionError(
                str(wrong), "the sum of the contributions", "report this: it is an error of the switch"
            ) from None
        _show(console, result)
        common.write_result(run.as_json(result), json_file)


def _show(console: Console, result: SwitchSpeed) -> None:
    from railweave.experiments import tables  # noqa: PLC0415

    titles = ("target", "ns hot", "ns cold", "packets/s", "Mbit/s in", "window", "per frame", "sent again")
    rows = [
        (f"engine {speed.way}", f"{speed.hot_ns:.0f}", f"{speed.cold_ns:.0f}", *["-"] * 5)
        for speed in result.engine
    ]
    rows += [
        (
            speed.target,
            *["-"] * 2,
            f"{speed.pps:,.0f}",
            f"{result.bits_per_packet * speed.pps / 1e6:,.0f}",
            str(speed.load.window),
            str(speed.load.segments),
            str(speed.repeated),
        )
        for speed in result.speeds
    ]
    title = f"{result.options.lanes} lanes per packet, {result.options.workers} workers"
    console.print(tables.table(titles, rows, box=None, title=title))
    for note in result.notes():
        console.print(note)
