# SPDX-License-Identifier: Apache-2.0
"""`railweave doctor`: which parts that railweave can use are present, and how to get the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from railweave.commands import common
from railweave.commands.checks import Finding, run_checks

app = typer.Typer()


@app.command(
    "doctor",
    epilog="Examples: railweave doctor --json machine.json · "
    "railweave doctor --cluster /etc/railweave/cluster.yaml",
)
def doctor(
    json_file: common.JsonFile = None,
    cluster: common.ClusterFile = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on missing optional parts as well.")] = False,
) -> None:
    """Check this machine: privileges, tools, kernel features, Python packages, optional parts.

    With --cluster, check its place in a cluster instead: controller, clock, switches, and each plane from its
    NIC to the other hosts and a sum in the network. Exits with 1 if something that is needed is missing.
    """
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    purpose = "take part in the cluster" if cluster else "run the demo"
    with common.one_line_errors():
        findings = _of_cluster(cluster) if cluster else run_checks()
    console = common.console(json_file)
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        absent = Text("absent", "red") if finding.needed else Text("no", "yellow")
        mark = Text("ok", "green") if finding.present else absent
        table.add_row(mark, finding.name, finding.detail, "" if finding.present else finding.remedy)
    console.print(table)
    able = all(finding.present for finding in findings if finding.needed)
    verdict = f"can {purpose}" if able else f"cannot {purpose}: see what to do"
    console.print(f"this machine {verdict}", style="bold")
    values: list[dict[str, Any]] = [vars(finding) for finding in findings]
    with common.one_line_errors():
        common.write_json({"ok": able, "checks": values}, json_file)
    if not able or (strict and not all(finding.present for finding in findings)):
        raise typer.Exit(1)


def _of_cluster(file: Path) -> list[Finding]:
    from railweave.commands import cluster_checks  # noqa: PLC0415
    from railweave.topologies.cluster import load  # noqa: PLC0415

    return cluster_checks.run_checks(load(file))
