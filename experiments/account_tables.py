# SPDX-License-Identifier: Apache-2.0
"""The accounts of rails as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from railweave.experiments.accounting import BYTE_CLASSES, RailAccount
from railweave.experiments.units import format_rate


def rail_table(rails: Sequence[RailAccount]) -> Table:
    """Return a row per rail: shares, goodput, and the counts that must agree; what was multicast, if any."""
    multicast = any(rail.multicast_bytes for rail in rails)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("rail")
    extra = ("multicast", "fetched") if multicast else ()
    columns = ("share", "goodput", "agent sent", "interface sent", "resent", *extra, "P4 results", "agree")
    for column in columns:
        table.add_column(column, justify="right")
    for rail in rails:
        table.add_row(
            rail.name,
            f"{rail.share:.1%}",
            format_rate(rail.goodput_bps),
            _megabytes(rail.agent_bytes),
            _megabytes(rail.interface_bytes),
            f"{rail.retransmissions:,}",
            *([_megabytes(rail.multicast_bytes), _megabytes(rail.fetched_bytes)] if multicast else ()),
            _results(rail),
            mark(rail.bytes_agree and rail.results_agree),
        )
    return table


def byte_table(rails: Sequence[RailAccount]) -> Table:
    """Return what the interfaces have sent, by class, in MB."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("MB sent")
    for column in (*BYTE_CLASSES, "unexplained"):
        table.add_column(column, justify="right")
    for rail in rails:
        counts = [*rail.sent.values(), rail.unexplained_bytes]
        table.add_row(rail.name, *(f"{count / 1e6:.3f}" for count in counts))
    return table


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.3f} MB"


def _results(rail: RailAccount) -> str:
    if rail.switch_results is None:
        return "-"
    return f"{rail.switch_results:,}/{rail.expected_results:,}"


def mark(good: bool) -> str:
    """Return yes or NO, in colour."""
    return "[green]yes[/green]" if good else "[red]NO[/red]"
