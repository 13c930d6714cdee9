# SPDX-License-Identifier: Apache-2.0
"""`railweave bench switch`, `receive` and `controller`: parts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railweave.commands import common
from railweave.help_texts import examples
from railweave.p4src.artifacts import AGGREGATION, PROFILES

if TYPE_CHECKING:
    from railweave.benchmarks.harness import Benchmark

BUILT = ", ".join(map(str, PROFILES[AGGREGATION]))
SWITCH_EXAMPLES = examples(
    "bench switch --compare bmv2",
    "bench switch --lanes 64 --hosts 4",
    "bench switch --parts programs --compare bmv2",
    "bench switch --parts engine --json -",
)
RECEIVE_EXAMPLES = examples("bench receive", "bench receive --mtu 9000 --parts receive --json -")
CONTROLLER_EXAMPLES = examples("bench controller", "bench controller --k 16 --jobs 64 --ranks 16")


def switch(
    lanes: Annotated[int, typer.Option(help=f"Number of lanes (int32) per packet: {BUILT}.")] = 256,
    hosts: Annotated[int, typer.Option(help="Number of hosts that contribute to every sum.", min=1)] = 2,
    parts: Annotated[
        str, typer.Option(help="Parts to measure, a list of engine, load, programs and pauses.")
    ] = "engine,load",
    seconds: Annotated[
        float, typer.Option(help="Duration of each load in seconds, per repetition.", min=0.1)
    ] = 1.0,
    compare: common.Compare = "",
    repeat: common.Repeat = 3,
    out: common.Out = Path("out/bench-switch"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure the packets per second of the P4 switch.

    The switch runs the aggregation program, except in the part programs.

    engine: packets in memory. The table shows nanoseconds of processor time per packet, with hot and with
    cold caches.

    load: the switch is a process on veth links. A native generator sends contributions in a closed loop and
    checks every result. It tries several windows (chunks in flight per host) and reports the best. With
    --compare echo, packets return unchanged through the same ports without an engine, which is the limit of
    packet I/O. This part needs root.

    programs: L2 forwarding, L2/L3 forwarding with an access list, UPF encapsulation and a BNG, each with one
    flow of 64-byte packets. The tables show packets per second and core: in memory, and as a process on veth
    links. --compare bmv2 adds BMv2. --lanes and --hosts have no effect. The second table needs root.

    pauses: the longest times that packets and other clients wait while a client sends heavy requests.

    Exits with 1 if a sum or packet is wrong.
    """
    with common.one_line_errors():
        targets = common.names(compare)
        options = {"lanes": lanes, "hosts": hosts, "seconds": seconds, "compare": targets}
        _measure("switch", options, common.names(parts), repeat, out, json_file)


def receive(
    mtu: Annotated[str, typer.Option(help="MTU in bytes, one number or a list.")] = "1500,4096,9000",
    parts: Annotated[
        str, typer.Option(help="Parts to measure, a list of receive, workers and endpoint.")
    ] = "receive,workers,endpoint",
    seconds: Annotated[
        float, typer.Option(help="Duration of each measurement in seconds, per repetition.", min=0.01)
    ] = 0.2,
    repeat: common.Repeat = 5,
    out: common.Out = Path("out/bench-receive"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure how fast one core receives in-network packets.

    receive: the packets are SPREAD (multicast data) and RESULT (sums of float32), as large as the MTU allows.
    They come from memory without the kernel, through sockets as super-packets that the kernel handles as one,
    and through sockets packet by packet. Another core sends. The table shows the number of such cores that a
    link of 100 Gbit/s needs. The kernel's part needs root.

    workers: two workers, each with one tree, compared with one worker.

    endpoint: the processor time of a host per chunk that it sends and result that it takes, without network.

    Every received byte is checked. Exits with 1 if one is wrong. On a busy machine, start the command with
    `chrt -f 10`, so that other processes do not delay it.
    """
    with common.one_line_errors():
        options = {"mtus": common.counts("--mtu", mtu), "seconds": seconds}
        _measure("receive", options, common.names(parts), repeat, out, json_file)


def controller(
    k: Annotated[
        str, typer.Option(help="Ports per switch of each fat tree, one number or a list: 4,8,16.")
    ] = "4,8",
    jobs: Annotated[int, typer.Option(help="Number of jobs that run at the same time.", min=1)] = 64,
    ranks: Annotated[int, typer.Option(help="Number of ranks per job, placed far apart.", min=2)] = 16,
    repeat: common.Repeat = 3,
    out: common.Out = Path("out/bench-controller"),
    json_file: common.JsonFile = None,
) -> None:
    """Measure the controller on fat trees of stub switches.

    The stubs answer over P4Runtime but move no packets, so this needs no root.

    The tables show the time until all switches are configured, the controller's memory, and the time,
    processor time and P4Runtime updates that one job's admission takes. Then a switch between leaves and
    cores dies. The last table shows the time until the first rank pauses, and the time until every tree that
    used the switch is placed on other switches. The command waits up to a minute for the latter.
    """
    with common.one_line_errors():
        options = {"ports": common.counts("--k", k), "jobs": jobs, "ranks": ranks}
        _measure("controller", options, None, repeat, out, json_file)


def _measure(
    name: str,
    options: Mapping[str, Any],
    parts: Sequence[str] | None,
    repeat: int,
    out: Path,
    json_file: Path | None,
) -> None:
    """Run a benchmark, or some of its parts. Print its tables, and write its result to files."""
    with common.run_folder(out) as folder:
        from railweave.benchmarks import harness  # noqa: PLC0415

        module = import_module(f"railweave.benchmarks.{name}")
        benchmark: Benchmark = module.benchmark(**options)
        chosen = benchmark if parts is None else benchmark.only(parts)
        result = common.run(harness.run(chosen, repeat, folder, common.phase), folder)
        console = common.console(json_file)
        for table in result.tables():
            console.print(table)
            console.print()
        console.print(result.notes())
        value = result.as_json()
        common.write_result(value, folder / "result.json")
        common.write_result(value, json_file)
