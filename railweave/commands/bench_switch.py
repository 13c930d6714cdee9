# SPDX-License-Identifier: Apache-2.0
"""`railweave bench switch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError
from railweave.p4src.artifacts import AGGREGATION, PROFILES

if TYPE_CHECKING:
    from rich.console import Console

    from railweave.experiments.switch_speed.run import SwitchSpeed

BUILT = ", ".join(map(str, PROFILES[AGGREGATION]))
EXAMPLES = (
    "Examples: railweave bench switch --vs bmv2 · railweave bench switch --lanes 64 --workers 4 · "
    "railweave bench switch --engine-only --json -"
)


def switch(
    lanes: Annotated[int, typer.Option(help=f"Lanes (int32) per packet: {BUILT}.")] = 256,
    workers: Annotated[int, typer.Option(help="Hosts that contribute to every sum.", min=1)] = 2,
    seconds: Annotated[float, typer.Option(help="Seconds for which each target is loaded.", min=0.1)] = 3.0,
    versus: Annotated[
        str, typer.Option("--vs", help="What to compare with: echo, bmv2, or both with a comma.")
    ] = "",
    engine_only: Annotated[
        bool, typer.Option("--engine-only", help="Measure the engine only, with packets in memory.")
    ] = False,
    out: common.Out = Path("out/bench-switch"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure packets per second of the embedded switch on the aggregation program, and of others with --vs.

    Engine alone: packets in memory, nanoseconds of CPU time per packet, with hot and with cold caches.
    End to end: the switch as a process on veth links, under a closed loop of contributions from a native
    generator that checks every result; several windows (chunks in flight per worker) are tried, and the best
    one is reported. With
    `--vs echo` packets return as they are through the same ports, without an engine: the limit of packet I/O.
    Exits with 1 if any sum is wrong. End to end needs root.
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

    titles = (
        "target",
        "lanes",
        "workers",
        "ns hot",
        "ns cold",
        "packets/s",
        "Mbit/s in",
        "window",
        "per frame",
    )
    shape = (str(result.options.lanes), str(result.options.workers))
    rows = [
        (f"engine {speed.way}", *shape, f"{speed.hot_ns:.0f}", f"{speed.cold_ns:.0f}", *["-"] * 5)
        for speed in result.engine
    ]
    rows += [
        (
            speed.target,
            *shape,
            *["-"] * 2,
            f"{speed.pps:,.0f}",
            f"{result.bits_per_packet * speed.pps / 1e6:,.0f}",
            str(speed.load.window),
            str(speed.load.segments),
            str(speed.repeated),
        )
        for speed in result.speeds
    ]
    console.print(tables.table((*titles, "sent again"), rows, box=None))
    for note in result.notes():
        console.print(note)
