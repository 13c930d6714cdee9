# SPDX-License-Identifier: Apache-2.0
"""The accounts of rails as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from railweave.experiments.accounting import BYTE_CLASSES, RailAccount
from railweave.experiments.units import format_rate


def rail_table(rails: Sequence[RailAccount]) -> Table:
    """Return a row per rail: shares, goodput, and the counts that must agree."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("rail")
    for column in ("share", "goodput", "agent sent", "interface sent", "resent", "P4 results", "agree"):
        table.add_column(column, justify="right")
    for rail in rails:
        table.add_row(
            rail.name,
            f"{rail.share:.1%}",
            format_rate(rail.goodput_bps),
            f"{rail.agent_bytes / 1e6:.3f} MB",
            f"{rail.interface_bytes / 1e6:.3f} MB",
            f"{rail.retransmissions:,}",
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


def _results(rail: RailAccount) -> str:
    if rail.switch_results is None:
        return "-"
    return f"{rail.switch_results:,}/{rail.expected_results:,}"


def mark(good: bool) -> str:
    """Return yes or NO, in colour."""
    return "[green]yes[/green]" if good else "[red]NO[/red]"
