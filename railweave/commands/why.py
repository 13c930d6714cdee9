# SPDX-License-Identifier: Apache-2.0
"""`railweave why`: the trees of each job, the rails that carry its calls, and why other rails do not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from railweave.commands import common
from railweave.errors import WRONG
from railweave.help_texts import examples

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from railweave.access import Access
    from railweave.v1 import controller_pb2 as pb

app = typer.Typer()

ANSWER_S = 10.0


@app.command(
    "why",
    epilog=examples("why", "why train-7 --controller 10.255.0.250:9600 --json -"),
)
def why(
    job: Annotated[
        str, typer.Argument(help="Name of the job. Default: all running jobs.", show_default=False)
    ] = "",
    controller: Annotated[
        str,
        typer.Option(
            help="HOST:PORT of the controller. Default: RAILWEAVE_CONTROLLER, else that of the cluster file, "
            "else 127.0.0.1:9600.",
            show_default=False,
        ),
    ] = "",
    cluster: common.ClusterFile = None,
    json_file: common.JsonFile = None,
) -> None:
    """Show the trees of each job and the rails of its calls.

    For a job without a tree, and for a rail that carries no calls, the output shows the reason. The agents
    report on their calls four times per lease, so the output may be a quarter of a lease old.
    """
    with common.one_line_errors():
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415

        from railweave.access import access_of  # noqa: PLC0415
        from railweave.topologies.cluster import load  # noqa: PLC0415

        described = load(cluster) if cluster else None
        default = described.controller if described else "127.0.0.1:9600"
        where = controller or os.environ.get("RAILWEAVE_CONTROLLER", default)
        answer = _ask(where, access_of(described), job)
        console = common.console(json_file)
        for report in answer.jobs:
            _print_job(report, console)
        if not answer.jobs:
            console.print(f"no job {job!r} is running" if job else "no job is running")
        common.write_json(MessageToDict(answer, preserving_proto_field_name=True), json_file)
        if job and not answer.jobs:
            raise typer.Exit(WRONG)


def _ask(controller: str, access: Access, job: str) -> pb.ExplainResponse:
    import grpc  # noqa: PLC0415 - help needs none

    from railweave.access import refusal  # noqa: PLC0415
    from railweave.errors import explain  # noqa: PLC0415
    from railweave.hosts.errors import ControllerUnreachable  # noqa: PLC0415
    from railweave.v1 import controller_pb2 as pb  # noqa: PLC0415
    from railweave.v1 import controller_pb2_grpc as pb_grpc  # noqa: PLC0415

    with access.channel(controller, [("grpc.enable_http_proxy", 0)]) as channel:
        stub = pb_grpc.ControllerStub(channel)  # type: ignore[no-untyped-call]
        try:
            answer: pb.ExplainResponse = stub.Explain(pb.ExplainRequest(job=job), timeout=ANSWER_S)
        except grpc.RpcError as error:
            raise ControllerUnreachable(
                refusal(access.tls, controller)
                or explain(f"{controller}: {error.code().name}: {error.details()}", "a controller there"),
                do="start `railweave controller`, or name its address with --controller or --cluster",
            ) from None
    return answer


def _print_job(report: pb.JobReport, console: Console) -> None:
    from rich.text import Text  # noqa: PLC0415 - help needs none

    console.print(Text.assemble((report.job, "bold"), f"  {report.size} ranks"))
    for rail in report.rails:
        plane = (f"{rail.kind} on plane {rail.plane}", "dim")
        console.print(Text.assemble(f"  {rail.rail}  ", plane, "  ", *_in_network(rail)))
        for tree in rail.trees:
            moved = f", moved {tree.moves} times" if tree.moves else ""
            held = ("; ", (f"paused: {tree.paused}", "yellow")) if tree.paused else ()
            where = f"root {tree.root} of {', '.join(tree.switches)}" if tree.root else "no place"
            line = f"    tree {tree.tree}: group {tree.group}, {where}, {tree.slots} slots{moved}"
            console.print(Text.assemble(line, *held), soft_wrap=True)
        for number, member in enumerate(rail.ring):
            how = f"alone: {member.reason}" if member.reason else f"a rack, tree {number}"
            ranks = ", ".join(map(str, member.ranks))
            console.print(f"    member {number} of the ring: rank {ranks}, {how}", soft_wrap=True)
    if any(rank.decisions for rank in report.ranks):
        console.print(_decisions(report))


def _in_network(rail: pb.RailReport) -> list[str | tuple[str, str]]:
    """Return parts of a line: text, or text and its style."""
    if rail.refusal:
        return [(f"refused: {rail.refusal}", "yellow")]
    if rail.ring:
        racks = sum(not member.reason for member in rail.ring)
        return [f"a ring of {racks} racks and {len(rail.ring) - racks} single ranks"]
    if rail.kind == "netreduce":
        window = rail.sums.window_packets
        how = f"sums by {_adders(rail)}, window of {window} packets" if window else "sums by the hosts"
        return [how, (f": {rail.sums.reason}", "yellow")] if rail.sums.reason else [how]
    if rail.HasField("algorithm"):
        return [f"{rail.algorithm.algorithm}, job {rail.algorithm.number}, {rail.algorithm.lanes} lanes"]
    return [f"{len(rail.trees)} trees" if rail.kind == "ina" else ""]


def _adders(rail: pb.RailReport) -> str:
    root, *others = rail.adders or ("no switch now",)
    return f"{root}, root of {', '.join(others)}" if others else root


def _decisions(report: pb.JobReport) -> Table:
    """Return a row for every class of calls and rail, with the ranks that reported it."""
    from rich.table import Table  # noqa: PLC0415

    ranks: dict[tuple[str, ...], set[int]] = {}
    for rank in report.ranks:
        for each in rank.decisions:
            size = f"<= {each.size_class:,}" if each.size_class else "any"
            verdict = " ".join(filter(None, ("used" if each.used else each.reason, each.detail)))
            key = (each.collective, each.dtype, each.op, size, each.rail, verdict)
            ranks.setdefault(key, set()).add(rank.rank)
    table = Table("collective", "dtype", "op", "bytes", "rail", "verdict", "ranks", box=None, pad_edge=True)
    for row, who in sorted(ranks.items()):
        table.add_row(*row, "all" if len(who) == report.size else ",".join(map(str, sorted(who))))
    return table
