# SPDX-License-Identifier: Apache-2.0
"""`railweave bench receive`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError
from railweave.help_texts import examples

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from railweave.experiments.receive.run import ReceiveSpeed

EXAMPLES = examples(
    "bench receive",
    "bench receive --mtu 9000 --json -",
)


def receive(
    mtu: Annotated[str, typer.Option(help="MTU in bytes, one number or a list.")] = "1500,4096,9000",
    seconds: Annotated[float, typer.Option(help="Duration of each measurement in seconds.", min=0.05)] = 1.0,
    json_file: common.JsonFile = None,
) -> None:
    """Measure how fast one core receives in-network packets.

    The packets are SPREAD (multicast data) and RESULT (sums of float32), as large as the MTU allows. They
    come from memory without the kernel, through sockets as super-packets that the kernel handles as one, and
    through sockets packet by packet. Another core sends.

    The first table shows how many such cores links of 100, 400 and 1,600 Gbit/s need. The second compares two
    workers, each with one tree, with one worker. The kernel's part needs root.

    Every received byte is checked. Exits with 1 if one is wrong. On a busy machine, start the command with
    `chrt -f 10`, so that other processes do not delay it.
    """
    with common.one_line_errors():
        from railweave.experiments.receive import run  # noqa: PLC0415

        console = common.console(json_file)
        try:
            mtus = [int(each) for each in mtu.split(",")]
        except ValueError:
            raise OptionError(
                f"--mtu {mtu!r}", "numbers of bytes, such as 1500,9000", "correct --mtu"
            ) from None
        try:
            result = run.run(mtus, seconds, common.phase)
        except run.WrongBytes as wrong:
            raise OptionError(
                str(wrong),
                "the bytes that were sent",
                "report this: it is an error of railweave or the kernel",
            ) from None
        finally:
            common.progress.clear()
        _show(console, result)
        common.write_result(run.as_json(result), json_file)


def _show(console: Console, result: ReceiveSpeed) -> None:
    from railweave.experiments import tables  # noqa: PLC0415
    from railweave.experiments.receive.run import LINKS_GBPS  # noqa: PLC0415

    titles = ("from", "kind", "MTU", "payload", "ns/packet", "at 64 B", "busy", "packets/s", "Gbit/s")
    rows = [
        (
            row.way,
            row.kind,
            str(row.mtu),
            str(row.payload),
            f"{row.ns:.0f}",
            f"{row.small_ns:.0f}",
            f"{row.busy:.0%}",
            f"{1e9 / row.ns:,.0f}",
            f"{row.gbps:.1f}",
            *(str(row.cores(link)) for link in LINKS_GBPS),
        )
        for row in result.rows
    ]
    columns = (*titles, *(f"{link}G" for link in LINKS_GBPS))
    console.print(tables.table(columns, rows, left=2, box=None))
    console.print()
    if result.pairs:
        console.print(_pairs(result))
        console.print()
    for note in result.notes():
        console.print(note)


def _pairs(result: ReceiveSpeed) -> Table:
    from railweave.experiments import tables  # noqa: PLC0415

    rows = [
        (
            pair.way,
            pair.kind,
            str(pair.mtu),
            f"{pair.one_ns:.0f} ns",
            f"{pair.two_ns:.0f} ns",
            f"{pair.gain:.2f}",
        )
        for pair in result.pairs
    ]
    columns = ("from", "kind", "MTU", "one worker", "two workers", "gain")
    return tables.table(columns, rows, left=2, box=None)
