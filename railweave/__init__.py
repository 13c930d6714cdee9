# SPDX-License-Identifier: Apache-2.0
"""railweave: multi-rail, in-network collectives with a P4 switch in the loop.

import railweave
with railweave.init() as comm:          # RANK, WORLD_SIZE, RAILWEAVE_* say where and over which rails
    mean = comm.all_reduce(gradient, op="avg")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from railweave.experiments.program.testbed import Testbed
    from railweave.hosts.communicator import Communicator
    from railweave.hosts.errors import (
        CollectiveMismatch,
        ControllerUnreachable,
        GroupRefused,
        InvalidOption,
        JoinTimeout,
        PeerLost,
        RailDown,
        RailweaveError,
        UnsupportedDType,
    )
    from railweave.hosts.options import RailSpec
    from railweave.hosts.work import Work

__version__ = version("railweave")

# Imported when they are asked for, so that the command line is quick.
_HOMES = {"Communicator": "communicator", "Work": "work", "RailSpec": "options"}  # the others: errors

__all__ = [
    "CollectiveMismatch",
    "Communicator",
    "ControllerUnreachable",
    "GroupRefused",
    "InvalidOption",
    "JoinTimeout",
    "PeerLost",
    "RailDown",
    "RailSpec",
    "RailweaveError",
    "UnsupportedDType",
    "Work",
    "init",
    "lab",
]


def init(
    *,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    cluster: str | None = None,
    controller: str | None = None,
    rails: str | Sequence[str | RailSpec] | None = None,
    shares: Mapping[str, float] | None = None,
    timeout_s: float | None = None,
    peer_timeout_s: float | None = None,
    metrics: str | None = None,
    deterministic: bool | None = None,
    costs: str | None = None,
    report: str | None = None,
    spin_us: float | None = None,
    progress_cpus: str | Sequence[int] | None = None,
    multicast_roots: int | None = None,
) -> Communicator:
    """Join a job and return this rank's communicator once all ranks are in and connected.

    What is not given comes from the environment: RANK and WORLD_SIZE (as torchrun sets them; else
    what Open MPI, PMI or Slurm set: `hosts.options.LAUNCHERS`), RAILWEAVE_JOB, RAILWEAVE_CLUSTER (a cluster
    file: docs/howto/cluster.md; or else what follows), RAILWEAVE_CONTROLLER (host:port), RAILWEAVE_RAILS
    (`name=kind@interface[/rate_bps],…`; the name is also the plane's; of a cluster's planes the names alone),
    RAILWEAVE_SHARES (`name=share,…`; by default in proportion to what the links allow),
    RAILWEAVE_TIMEOUT_S (300: for joining and for every blocking call) and RAILWEAVE_PEER_TIMEOUT_S (5:
    without a sign of life from a rank's process). With `metrics` or RAILWEAVE_METRICS (HOST:PORT), Prometheus
    finds this rank's counts there. With `deterministic` or RAILWEAVE_DETERMINISTIC=1 results repeat bit for
    bit from run to run: the split follows no measurements. `costs` or RAILWEAVE_COSTS names a JSON file that
    keeps what is learnt of the rails from one job to the next. To the file `report` or RAILWEAVE_REPORT the
    rank writes when it has joined, and at its end its slices and counts; with RAILWEAVE_REPORT_EVERY_S,
    its counts so far in a file beside it. For `spin_us` or RAILWEAVE_SPIN_US (0) microseconds a small call
    that waits looks for its end before it sleeps. With `progress_cpus` or RAILWEAVE_PROGRESS_CPUS (2-3,6)
    threads on these CPUs alone send and receive, and spin for `spin_us`; callers sleep until their calls
    are done. In an allgather, `multicast_roots` or RAILWEAVE_MULTICAST_ROOTS ranks multicast at once (0:
    all), followed by the others one by one.
    Raises InvalidOption, JoinTimeout, GroupRefused, ControllerUnreachable.
    """
    from railweave.hosts.communicator import Communicator  # noqa: PLC0415 - see _HOMES
    from railweave.hosts.options import options_from  # noqa: PLC0415

    return Communicator(
        options_from(
            job=job,
            rank=rank,
            world_size=world_size,
            cluster=cluster,
            controller=controller,
            rails=rails,
            shares=shares,
            timeout_s=timeout_s,
            peer_timeout_s=peer_timeout_s,
            metrics=metrics,
            deterministic=deterministic,
            costs=costs,
            report=report,
            spin_us=spin_us,
            progress_cpus=progress_cpus,
            multicast_roots=multicast_roots,
        )
    )


def lab(
    topology: str = "planes",
    *,
    hosts: int = 4,
    rails: str | Sequence[str] = "ina,tcp,rdma",
    rate: str | float | None = None,
    mtu: int = 1500,
    loss: str | float = 0,
    impair: str = "",
    switch: str = "embedded",
    seed: int = 1,
    out: str = "out/lab",
) -> Testbed:
    """Return a lab for `with`: hosts, switches and controller on this machine, as `railweave run` makes them.

    The arguments are those of `railweave run`, rates and loss also as numbers of bit/s and as probabilities;
    `experiments.program.testbed` has an example. Each lab makes a folder in `out`, for logs. Needs root.
    Raises TopologyError, OptionError, OutputError (all ValueError), and LabError where the network cannot be
    made, and in a rank of a job.
    """
    from pathlib import Path  # noqa: PLC0415

    from railweave import outputs  # noqa: PLC0415
    from railweave.commands import common  # noqa: PLC0415
    from railweave.experiments.program.testbed import Testbed, refuse_in_rank  # noqa: PLC0415
    from railweave.topologies.lab.options import LabOptions  # noqa: PLC0415

    refuse_in_rank()
    kinds = rails if isinstance(rails, str) else ",".join(rails)
    chosen = common.topology_of(topology, hosts, kinds, None if rate is None else str(rate), switch, mtu)
    target = common.check_target(switch, chosen)
    losses = common.loss_of(str(loss), chosen)
    return Testbed(
        chosen, LabOptions(outputs.new_folder(Path(out)), target, losses, impair=impair, seed=seed)
    )


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"railweave.hosts.{_HOMES.get(name, 'errors')}"), name)
