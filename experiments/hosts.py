# SPDX-License-Identifier: Apache-2.0
"""Starts one rank of a job in every host of a lab."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from railweave.experiments.errors import OptionError
from railweave.hosts.errors import InvalidOption
from railweave.topologies.errors import WorkerFailed
from railweave.topologies.lab.faults import nic_of
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Plane, Topology
from railweave.topologies.planes import management_address

TORCH_PORT = 29500
NO_RAILWEAVE = "No module named 'railweave'"


@dataclass(frozen=True)
class JobOptions:
    """The configuration of a job's ranks."""

    job: str
    command: Sequence[str]  # of every rank, as `module_command` makes it
    shares: Mapping[str, float] | None = None  # by rail; None: by measured cost
    planes: Sequence[str] | None = None  # the planes to use as rails; None: all
    name: str = ""  # shown beside the host's name, where several jobs run
    timeout_s: float | None = None  # of joining and of every call; None: railweave's default
    environment: Mapping[str, str] = field(default_factory=dict)  # additional variables
    report_of: Callable[[int], Path] | None = None  # the file of a rank's report
    merged: bool = False  # stderr is merged into stdout


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command of a Python module."""
    return [sys.executable, "-m", module, *arguments]


def search_path() -> str:
    """Return the PATH of ranks. Its first `python` is the one of the environment in which railweave runs."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def require_program(command: Sequence[str]) -> None:
    """Raise OptionError if a command's program does not exist, or cannot be executed."""
    if command and shutil.which(command[0], path=search_path()) is None:
        raise OptionError(
            f"program {command[0]!r} is no executable file on PATH",
            "one, as in `python my.py`",
            f"correct the name (railweave's own Python is {sys.executable})",
        )


def explained(error: WorkerFailed, command: Sequence[str]) -> WorkerFailed:
    """Return the error. If a rank's Python has no railweave, add the name of this Python and the remedy."""
    if NO_RAILWEAVE not in str(error):
        return error
    return WorkerFailed(
        error.code,
        f"{error}\n{shutil.which(command[0], path=search_path())} runs a Python without railweave",
        sys.executable,
        "write `python` for it, or install railweave into the other one",
    )


def require_peers(topology: Topology) -> None:
    """Raise OptionError for fewer than two hosts."""
    if len(topology.hosts) < 2:
        raise OptionError(
            f"{len(topology.hosts)} hosts", "at least 2, which a collective needs", "ask for more hosts"
        )


def planes_of(topology: Topology, names: str | Sequence[str] | None) -> list[Plane]:
    """Return the planes of these names, or of a comma-separated list of names; None: all planes.

    Raises InvalidOption, which lists the topology's planes, for an unknown name and for no name at all.
    """
    if names is None:
        return list(topology.planes)
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    known = {plane.name: plane for plane in topology.planes}
    unknown = [name for name in listed if name not in known]
    if unknown or not listed:
        what = f"no plane is called {unknown[0]!r}" if unknown else "no plane is named"
        raise InvalidOption(
            f"rails={names!r}: {what}", f"one or more of {', '.join(known)}", "correct the name"
        )
    return [plane for name, plane in known.items() if name in listed]


async def start_job(lab: Lab, options: JobOptions) -> dict[Child, int]:
    """Start the job's ranks in the order of the hosts. Return the rank of each process."""
    return {await start_rank(lab, options, rank): rank for rank in range(len(lab.topology.hosts))}


async def start_rank(lab: Lab, options: JobOptions, rank: int) -> Child:
    """Start one rank of the job on its host."""
    host = lab.topology.hosts[rank]
    environment = environment_of(lab.topology, host, rank, lab.controller, options)
    name = f"{host} (rank {rank}" + (f", {options.name})" if options.name else ")")
    return await lab.start_worker(host, name, options.command, environment, merged=options.merged)


def environment_of(
    topology: Topology, host: str, rank: int, controller: str, options: JobOptions
) -> dict[str, str]:
    """Return the environment variables from which `railweave.init()` learns its job and its rails."""
    used = planes_of(topology, options.planes)
    rails = []
    for plane in used:
        interface = nic_of(plane, host).interface
        rails.append(
            f"{plane.name}={plane.kind}@{interface}" + (f"/{plane.rate_bps}" if plane.rate_bps else "")
        )
    environment = {
        "PATH": search_path(),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(topology.hosts)),
        "LOCAL_RANK": "0",
        "RAILWEAVE_JOB": options.job,
        "RAILWEAVE_CONTROLLER": controller,
        "RAILWEAVE_RAILS": ",".join(rails),
        # torchrun sets these for torch.distributed. Ranks meet at this address, outside of the planes.
        "MASTER_ADDR": management_address(1),
        "MASTER_PORT": str(TORCH_PORT),
        "GLOO_SOCKET_IFNAME": nic_of(used[0], host).interface,
        # Hosts share this machine's processors. One thread per product also makes results repeatable.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    if options.timeout_s is not None:
        environment["RAILWEAVE_TIMEOUT_S"] = f"{options.timeout_s:g}"
    if options.shares is not None:
        environment["RAILWEAVE_SHARES"] = ",".join(
            f"{name}={share:.6f}" for name, share in options.shares.items()
        )
    if options.report_of is not None:
        environment["RAILWEAVE_REPORT"] = str(options.report_of(rank))
    return {**environment, **options.environment}
