# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal, made of the values that were read from a switch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from railweave.switch.inspect.cells import RATES, runs

Row = dict[str, Any]
_PER_LINE = 8  # cells of a register


LOSSES = {
    "rx_missed": "arrived while the kernel's receive buffer was full",
    "rx_refused": "arrived as super-packets that the switch cannot cut, as in GRE, or were too long",
    "tx_dropped": "could not leave: the port's queue was full, or its interface down",
    "tx_refused": "could not leave: the kernel refused them, such as longer than the MTU",
}
"""Why a port loses packets, by its counters."""


def print_log(console: Console, rows: Iterable[Row]) -> None:
    """Print messages of the program, each behind its time of day."""
    for row in rows:
        time = datetime.fromtimestamp(row["time_ns"] / 1e9).isoformat(timespec="milliseconds")
        console.print(f"{time.partition('T')[2]} {row['text']}", soft_wrap=True)


def print_stats(console: Console, result: Row) -> None:
    """Print ports, the program's packets, and packets per action."""
    if result["ports"] is None:
        console.print("port counters: only the embedded switch has them")
    else:
        rates = any("rx_packets_per_s" in port for port in result["ports"])
        columns = ["port", "interface", "", "rx packets", "tx packets", "rx bytes", "tx bytes", "lost"]
        rows = []
        for port in result["ports"]:
            lost = sum(port[name] for name in LOSSES)
            row = [str(port["port"]), port["interface"], "up" if port["up"] else "down"]
            counts = [port[n] for n in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")]
            row += [f"{count:,}" for count in (*counts, lost)]
            if rates:
                row += [f"{port[f'{n}_packets_per_s']:,.0f}" for n in ("rx", "tx")]
                row += [f"{port[f'{n}_bytes_per_s'] * 8e-6:,.2f}" for n in ("rx", "tx")]
            rows.append(row)
        columns += ["rx/s", "tx/s", "rx Mbit/s", "tx Mbit/s"] if rates else []
        _print(console, columns, rows, left=3)
        for port in result["ports"]:
            for counter, reason in LOSSES.items():
                if port[counter]:
                    console.print(f"port {port['port']} lost {port[counter]:,}: {reason}", soft_wrap=True)
    if result["impairments"]:
        console.print()
        columns = list(result["impairments"][0])
        rows = [
            [f"{v:,}" if isinstance(v, int) else v for v in one.values()] for one in result["impairments"]
        ]
        _print(console, columns, rows, left=2)
    if result["pipeline"] is not None and result["pipeline"]["program"]:
        pipeline = result["pipeline"]
        parts = [f"{name} {pipeline[name]:,}" for name in ("received", "emitted", "dropped", "aborted")]
        console.print(f"\nprogram {pipeline['program']}, {pipeline['execution']}: " + ", ".join(parts))
        for line in pipeline["scalar"]:
            console.print(f"not fused: {line}", soft_wrap=True)
    if result["actions"]:
        console.print()
        rate = any("packets_per_s" in row for row in result["actions"])
        names = ["table", "action", "entries", "packets", "bytes"] + (["packets/s"] if rate else [])
        rows = [
            [row["table"], row["action"]]
            + [f"{row[n]:,}" for n in ("entries", "packets", "bytes")]
            + ([f"{row['packets_per_s']:,.0f}"] if rate else [])
            for row in result["actions"]
        ]
        _print(console, names, rows, left=2)


def print_tables(console: Console, tables: Sequence[Row], *, entries: bool) -> None:
    """Print an overview, or every entry."""
    if not entries:
        rows = [
            [t["name"], f"{len(t['entries'])}", f"{t['size']}", (t["default"] or {}).get("call", "-")]
            for t in tables
        ]
        _print(console, ["table", "entries", "size", "default"], rows, left=1)
        return
    for table in tables:
        default = (table["default"] or {}).get("call", "-")
        console.print(
            f"{table['name']}: {len(table['entries'])} of {table['size']} entries, default {default}"
        )
        if table["entries"]:
            _print_entries(console, table["entries"])
        console.print()


def _print_entries(console: Console, entries: Sequence[Row]) -> None:
    optional = ("priority", "packets", "bytes", "idle_s", "meter")
    extra = [name for name in optional if any(name in entry for entry in entries)]
    fields = list(entries[0]["text"])
    rows = [
        [entry["text"][field] for field in fields] + [_does(entry)] + [_extra(entry, name) for name in extra]
        for entry in entries
    ]
    _print(console, [*fields, "action", *extra], rows, left=len(fields) + 1)


def _does(entry: Row) -> str:
    if "action_set" in entry:
        return " | ".join(f"{one['weight']}x {one['call']}" for one in entry["action_set"])
    for kind in ("member", "group"):
        if kind in entry:
            return f"{kind} {entry[kind]}"
    return str(entry.get("call", "-"))


def _extra(entry: Row, name: str) -> str:
    value = entry.get(name)
    if value is None:
        return "-"
    if name == "meter":
        return "/".join(str(value[rate]) for rate in RATES)
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"


def print_declared(console: Console, rows: Sequence[Row]) -> None:
    """Print arrays without their values."""
    _print(
        console, ["name", "size", "cells"], [[r["name"], f"{r['size']:,}", r["cells"]] for r in rows], left=1
    )


def print_registers(console: Console, result: Row) -> None:
    """Print values, eight to a line; a long run of equal values takes one line."""
    values, first = result["values"], result["first"]
    console.print(f"{result['name']}: {result['size']:,} cells of {result['cells']}")
    pending: list[int] = []
    start = first

    def flush() -> None:
        for at in range(0, len(pending), _PER_LINE):
            console.print(f"{start + at:>8}  {'  '.join(map(_cell, pending[at : at + _PER_LINE]))}")
        pending.clear()

    for begin, end, value in runs(values, first):
        if end - begin >= _PER_LINE:
            flush()
            console.print(f"{begin:>8}  … {end}: all {_cell(value)}")
            start = end + 1
        else:
            if not pending:
                start = begin
            pending += [value] * (end - begin + 1)
    flush()


def _cell(value: int) -> str:
    return f"{value:#x}" if value > 9 else str(value)


def print_counters(console: Console, result: Row) -> None:
    """Print the non-zero cells."""
    rows = [
        [str(index), f"{cell['packets']:,}", f"{cell['bytes']:,}"]
        for index, cell in enumerate(result["values"], result["first"])
        if cell["packets"] or cell["bytes"]
    ]
    console.print(f"{result['name']}: {result['size']:,} cells, {len(rows)} of those read are non-zero")
    if rows:
        _print(console, ["index", "packets", "bytes"], rows, left=0)


def print_meters(console: Console, result: Row) -> None:
    """Print the configured cells."""
    rows = [
        [str(index), *(f"{cell[rate]:,}" for rate in RATES)]
        for index, cell in enumerate(result["values"], result["first"])
        if cell is not None
    ]
    console.print(f"{result['name']}: {result['size']:,} cells ({result['cells']}), {len(rows)} configured")
    if rows:
        _print(console, ["index", *RATES], rows, left=0)


def print_groups(console: Console, result: Row) -> None:
    """Print multicast groups, clone sessions, and members and groups of action profiles."""
    for title, key, number in (
        ("multicast group", "multicast", "group"),
        ("clone session", "clone_sessions", "session"),
    ):
        rows = result[key]
        if rows is None:
            console.print(f"{title}s: this switch's P4Runtime server reads none")
            continue
        console.print(f"{title}s: {len(rows)}")
        if not rows:
            continue
        _print(
            console, [title, "port:instance"], [[str(r[number]), _ports(r["replicas"])] for r in rows], left=2
        )
    for profile in result["profiles"] or ():
        sizes = f"{len(profile['members'])} members, {len(profile['groups'])} groups"
        console.print(f"action profile {profile['name']}: {sizes}")
        members = [[f"member {m['member']}", m.get("call", "-")] for m in profile["members"]]
        members += [
            [f"group {g['group']}", ", ".join(f"{m['weight']}x {m['member']}" for m in g["members"])]
            for g in profile["groups"]
        ]
        for name, does in members:
            console.print(f"  {name}: {does}")


def _ports(replicas: Iterable[Row]) -> str:
    return ", ".join(f"{replica['port']}:{replica['instance']}" for replica in replicas)


def _print(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int) -> None:
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
