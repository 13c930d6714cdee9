# SPDX-License-Identifier: Apache-2.0
"""`railweave doctor`: the parts that are present on this machine, and how to install the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from railweave.commands import common
from railweave.commands.checks import Finding, run_checks
from railweave.errors import LACKING, explain
from railweave.help_texts import examples

app = typer.Typer()


@app.command(
    "doctor",
    epilog=examples("doctor --json machine.json", "doctor --cluster /etc/railweave/cluster.yaml"),
)
def doctor(
    json_file: common.JsonFile = None,
    cluster: common.ClusterFile = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 also if an optional part is missing.")
    ] = False,
) -> None:
    """Check this machine: tools, kernel features, packages.

    With --cluster, check the machine's place in a cluster instead: the controller, clocks, switches, and each
    plane from the machine's NIC to the other hosts and to an in-network sum.

    Exits with 3 if a needed part is missing.
    """
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    purpose = "take part in the cluster" if cluster else "run the demo"
    with common.one_line_errors():
        findings = _of_cluster(cluster) if cluster else run_checks()
    console = common.console(json_file)
    table = Table(box=None, pad_edge=False)
    for column in ("", "part", "found"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        if finding.present:
            table.add_row(Text("ok", "green"), finding.name, finding.detail)
        else:
            absent = Text("absent", "red") if finding.needed else Text("no", "yellow")
            table.add_row(absent, finding.name, explain(finding.detail, finding.expected))
    console.print(table)
    missing = [finding for finding in findings if not finding.present]
    if missing:
        console.print("\nremedies:")
    for finding in missing:
        console.print(f"  {finding.name}: {finding.remedy}", soft_wrap=True)
    able = all(finding.present for finding in findings if finding.needed)
    verdict = f"can {purpose}" if able else f"cannot {purpose}: see the remedies"
    console.print(f"\nthis machine {verdict}", style="bold")
    values: list[dict[str, Any]] = [vars(finding) for finding in findings]
    with common.one_line_errors():
        common.write_json({"ok": able, "checks": values}, json_file)
    if not able or (strict and not all(finding.present for finding in findings)):
        raise typer.Exit(LACKING)


def _of_cluster(file: Path) -> list[Finding]:
    from railweave.commands import cluster_checks  # noqa: PLC0415
    from railweave.topologies.cluster import load  # noqa: PLC0415

    return cluster_checks.run_checks(load(file))
