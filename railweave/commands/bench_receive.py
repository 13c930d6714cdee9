# SPDX-License-Identifier: Apache-2.0
"""`railweave bench receive`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from railweave.experiments.receive.run import ReceiveSpeed

EXAMPLES = (
    "Examples: railweave bench receive · railweave bench receive --mtu 9000 --json - · "
    "chrt -f 10 railweave bench receive (where others keep the cores busy)"
)


def receive(
    mtu: Annotated[str, typer.Option(help="Bytes of an IP packet, one or a list.")] = "1500,4096,9000",
    seconds: Annotated[float, typer.Option(help="Seconds for each figure.", min=0.05)] = 1.0,
    json_file: common.JsonFile = None,
) -> None:
    """Measure how many packets per second one core receives on an in-network rail, and places.

    SPREAD packets (multicast data) and RESULT packets (sums of float32), as large as the MTU allows: from
    memory, so without a kernel; through sockets as super-packets, which the kernel handles as one; and packet
    by packet. Another core sends. States how many such cores links of 100, 400 and 1,600 Gbit/s need, and
    what two workers bring that have a tree each.
    Every byte received is compared; exits with 1 if one is wrong. The kernel's part needs root.
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
    if result.pairs:
        console.print(_pairs(result))
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
