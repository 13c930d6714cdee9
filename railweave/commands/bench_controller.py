# SPDX-License-Identifier: Apache-2.0
"""`railweave bench controller`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railweave.commands import common
from railweave.experiments.errors import OptionError
from railweave.help_texts import examples

if TYPE_CHECKING:
    from railweave.experiments.control_plane.run import ControlPlane

EPILOG = examples(
    "bench controller",
    "bench controller --k 16 --jobs 64 --ranks 16",
)
NETWORK = ("k", "hosts", "switches", "configured in", "MiB without jobs", "MiB with all jobs")
ADMIT = ("k", "job admitted in", "p99", "processor time", "updates")
MOVE = ("k", "trees of the dead switch", "first pause after", "all moved after", "updates")


def controller(
    k: Annotated[
        str, typer.Option(help="Ports per switch of each fat tree, one number or a list: 4,8,16.")
    ] = "4,8",
    jobs: Annotated[int, typer.Option(help="Number of jobs that run at the same time.", min=1)] = 64,
    ranks: Annotated[int, typer.Option(help="Number of ranks per job, placed far apart.", min=2)] = 16,
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
    with common.one_line_errors(), common.run_folder(out) as folder:
        from railweave.experiments import tables  # noqa: PLC0415
        from railweave.experiments.control_plane import run  # noqa: PLC0415
        from railweave.topologies.errors import TopologyError  # noqa: PLC0415

        console = common.console(json_file)
        found = []
        for ports in common.counts("--k", k):
            try:
                options = run.Options(ports, jobs, ranks, folder / f"k={ports}")
                found.append(common.run(run.run(options, common.phase), folder))
            except TopologyError as error:
                raise OptionError(f"--k: {error}") from error
        for titles, row in ((NETWORK, _network), (ADMIT, _admit), (MOVE, _move)):
            console.print(tables.table(titles, [(str(one.k), *row(one)) for one in found], box=None))
            console.print()
        console.print(f"{jobs} jobs, each with {ranks} ranks and one tree, joined one after the other.")
        common.write_result({"ok": True, "rows": [one.as_json() for one in found]}, json_file)


def _network(found: ControlPlane) -> tuple[str, ...]:
    memory = (f"{size / 2**20:.0f}" for size in (found.idle_bytes, found.full_bytes))
    return (str(found.hosts), str(found.switches), f"{found.configured_s:.1f} s", *memory)


def _admit(found: ControlPlane) -> tuple[str, ...]:
    admit = found.as_json()["admit_s"]
    times = (f"{1e3 * seconds:.0f} ms" for seconds in (admit["median"], admit["p99"], found.admit_cpu_s))
    return (*times, f"{found.admit_updates:.0f}")


def _move(found: ControlPlane) -> tuple[str, ...]:
    moved = "not in time" if found.move_s is None else f"{1e3 * found.move_s:.0f} ms"
    return (str(found.moved_trees), f"{1e3 * found.paused_s:.0f} ms", moved, str(found.move_updates))
