# SPDX-License-Identifier: Apache-2.0
"""Multi-rail, in-network collectives with a P4 switch in the loop.

    import railweave

    with railweave.init() as comm:
        mean = comm.all_reduce(gradient, op="avg")

The environment gives the job and its rails: RANK, WORLD_SIZE and RAILWEAVE_*. Arguments of `init` come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    import pandas

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

# Names are imported on first use, so that the command line starts fast.
_HOMES = {"Communicator": "communicator", "Work": "work", "RailSpec": "options"}  # all other names: errors

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
    "records",
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
    """Join a job and return this rank's communicator.

    The call returns when all ranks have joined and their rails are connected. Every argument that is None is
    read from the environment. RANK and WORLD_SIZE may also be the variables of Open MPI, PMI or Slurm.

    Args:
        job: Name of the job. Ranks of different jobs never meet. RAILWEAVE_JOB, default `default`.
        rank: Number of this process in the job, from 0. RANK.
        world_size: Number of processes in the job. WORLD_SIZE.
        cluster: Path of a cluster file. It gives this host's rails, the controller's address and the TLS
            files. RAILWEAVE_CLUSTER, default none.
        controller: Address of the controller as HOST:PORT. RAILWEAVE_CONTROLLER, default the cluster file's.
        rails: Rails of this host, as `name=kind@interface[/rate]` in a comma-separated string or a list. The
            name is also the plane's, and is the kind if it is left out. The rate is in bit/s, such as 100M.
            With a cluster file the names of its planes suffice. RAILWEAVE_RAILS, default all rails of the
            cluster file.
        shares: Share of every tensor that each rail carries, by rail name. Only the ratios count.
            RAILWEAVE_SHARES (`name=share,…`), default none: the ranks learn the split from measured costs.
        timeout_s: Seconds for joining, and for every blocking call. RAILWEAVE_TIMEOUT_S, default 300.
        peer_timeout_s: Seconds without a sign of life after which a rank's process counts as lost; 0: never.
            RAILWEAVE_PEER_TIMEOUT_S, default 5.
        metrics: HOST:PORT on which this rank serves Prometheus metrics; port 0: a free one.
            RAILWEAVE_METRICS, default none.
        deterministic: Repeat results bit for bit from run to run: the split follows no measurement.
            RAILWEAVE_DETERMINISTIC (1 or 0), default False.
        costs: Path of a JSON file with the learned costs of rails. The rank reads it at the start and writes
            it at the end. RAILWEAVE_COSTS, default none.
        report: Path of a file for this rank's report: one line when it has joined, and one with its slices
            and counts when it leaves. RAILWEAVE_REPORT, default none.
        spin_us: Microseconds for which a call of at most 64 KiB polls before it sleeps, 0 to 1000.
            RAILWEAVE_SPIN_US, default 0.
        progress_cpus: CPUs for progress threads, such as `2-3,6`. These threads alone send and receive, and
            poll for `spin_us`. Callers sleep until their calls are done. RAILWEAVE_PROGRESS_CPUS, default
            none: the calling thread does the work.
        multicast_roots: Number of ranks that multicast at once in an allgather; 0: all. The others follow
            one by one. RAILWEAVE_MULTICAST_ROOTS, default 0.

    Returns:
        The communicator. Close it at the end, or use it as a context manager.

    Raises:
        InvalidOption: An option is missing or invalid, or differs from that of another rank.
        JoinTimeout: Not all ranks have joined within `timeout_s`. The message names the missing ranks.
        GroupRefused: The controller refuses the job, or refuses all of its rails.
        ControllerUnreachable: The controller does not answer at its address.
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


def records(out: str | PathLike[str]) -> pandas.DataFrame:
    """Return all timed calls below a folder of measurements as a flat table.

    The table has one row per call and rail. Its columns are described in the reference of file formats.

    Args:
        out: Folder that `railweave bench`, `railweave bench failover` or `railweave reproduce` has written.

    Returns:
        A pandas DataFrame.

    Raises:
        OptionError: There are no records, they have another version, or pandas is not installed.
    """
    from railweave.experiments.frame import records as read  # noqa: PLC0415

    return read(out)


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
    """Return a lab of hosts, switches and a controller on this machine, for use in a `with` block.

    The network is the one of `railweave run`, and the arguments are its options. Entering the `with` block
    makes the network, and needs root. Leaving the block removes it.

    Args:
        topology: `planes`, `leaf-spine:…`, `fat-tree:…`, `racks:…`, or the path of a topology file.
        hosts: Number of hosts, for the topology `planes`.
        rails: Kinds of the rails, one plane per rail: `ina`, `tcp`, `rdma` or `netreduce`.
        rate: Rate of the links in bit/s, such as `100M`, or one rate per plane such as `100M,20M`. 0:
            unshaped. None: 100M, and 8M for `ina` planes on BMv2.
        mtu: MTU of every link, in bytes.
        loss: Probability that a switch drops a datagram on `ina` and `rdma` planes, such as 0.01; or
            `plane=probability`, such as `ina=0.01`.
        impair: Impairment of the P4 planes' links, as for `railweave switch --impair`.
        switch: Target of P4 switches: `embedded` or `bmv2`.
        seed: Seed of losses and impairments.
        out: Folder for the folders of labs. Each lab makes its own: `out`/1, `out`/2 and so on.

    Returns:
        The lab, which makes its network when its `with` block is entered.

    Raises:
        TopologyError: The topology is invalid. Like the next two, it is a ValueError.
        OptionError: An argument is invalid.
        OutputError: The lab's folder cannot be made.
        LabError: The network cannot be made on this machine, or the caller is itself a rank of a job.
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
