# SPDX-License-Identifier: Apache-2.0
"""`railweave doctor`: which parts that railweave can use are present, and how to get the others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from railweave.commands import common

app = typer.Typer()


@app.command("doctor", epilog="Example: railweave doctor --json machine.json")
def doctor(
    json_file: common.JsonFile = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on missing optional parts as well.")] = False,
) -> None:
    """Check this machine: privileges, tools, kernel features, Python packages, optional parts.

    Exits with 1 if something that the demo needs is missing.
    """
    from rich.table import Table  # noqa: PLC0415

    from railweave.commands.checks import run_checks  # noqa: PLC0415

    findings = run_checks()
    console = common.console(json_file)
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        absent = "[red]absent[/red]" if finding.needed else "[yellow]no[/yellow]"
        mark = "[green]ok[/green]" if finding.present else absent
        table.add_row(mark, finding.name, finding.detail, "" if finding.present else finding.remedy)
    console.print(table)
    able = all(finding.present for finding in findings if finding.needed)
    verdict = "can run the demo" if able else "cannot run the demo: see the missing parts"
    console.print(f"this machine {verdict}", style="bold")
    values: list[dict[str, Any]] = [vars(finding) for finding in findings]
    with common.one_line_errors():
        common.write_json({"ok": able, "checks": values}, json_file)
    if not able or (strict and not all(finding.present for finding in findings)):
        raise typer.Exit(1)
