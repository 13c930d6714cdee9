# SPDX-License-Identifier: Apache-2.0
"""Options of a job, from keyword arguments or from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from railweave import quantities
from railweave.access import IN_CLEAR, Access, access_of
from railweave.hosts.cluster import interface_of, this_host
from railweave.hosts.errors import InvalidOption
from railweave.topologies import cluster as clusters
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import RAIL_KINDS

RAIL_FORM = "name=kind@interface or name=kind@interface/rate, with rates in bit/s as 100M or 100000000"
_RAIL = re.compile(r"(?:(?P<name>[\w.-]+)=)?(?P<kind>\w+)@(?P<interface>[^@/,=]+)(?:/(?P<rate>.+))?")
_CPUS = re.compile(r"(?P<first>\d{1,4})(-(?P<last>\d{1,4}))?", re.ASCII)
RDMA_PLACES = ("any", "device", "software")  # any: a device where the interface has one
MAX_TRAFFIC_CLASS = 255
SWITCHES = {"": False, "0": False, "false": False, "1": True, "true": True}
# Variables in which launchers give rank and world size: torchrun and most scripts, Open MPI's mpirun, PMI
# (MPICH, Intel MPI, srun --mpi=pmi2), srun. The first pair of which one variable is set gives both numbers.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
MAX_REPORT_EVERY_S = 3600.0
MAX_SPIN_US = 1000.0
MAX_CPUS = 1024  # the size of glibc's cpu_set_t
MAX_MULTICAST_ROOTS = 65535


@dataclass(frozen=True)
class RailSpec:
    """Name one rail of this host.

    Attributes:
        name: Name of the rail and of its plane, the same on all ranks.
        kind: `ina`, `tcp`, `rdma`, `netreduce`, or `algorithm`, which the controller's topology names.
        interface: This host's network interface on the plane.
        rate_bps: Rate of the link in bit/s; 0: unknown or unshaped.
    """

    name: str
    kind: str
    interface: str
    rate_bps: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown kinds."""
        if self.kind not in RAIL_KINDS:
            raise InvalidOption(
                f"rail {self.name!r} is of kind {self.kind!r}",
                f"one of {', '.join(RAIL_KINDS)}",
                "correct the kind",
            )

    @classmethod
    def parse(cls, text: str) -> RailSpec:
        """Parse `name=kind@interface[/rate]`. Without a name, the kind is the name.

        Raises InvalidOption if the text has another form.
        """
        match = _RAIL.fullmatch(str(text).strip())
        rate_bps = quantities.rate_bps(match["rate"] or "0") if match else None
        if match is None or rate_bps is None:
            raise InvalidOption(f"rail {text!r}", RAIL_FORM, "correct the rail")
        return cls(match["name"] or match["kind"], match["kind"], match["interface"], rate_bps)


@dataclass(frozen=True)
class Options:
    """Hold all options of a communicator. `railweave.init` describes them."""

    rank: int
    world_size: int
    rails: tuple[RailSpec, ...] = ()
    job: str = "default"  # only ranks with the same job name join each other
    controller: str = ""  # HOST:PORT
    access: Access = IN_CLEAR  # credentials for the controller, from the cluster file
    shares: Mapping[str, float] = field(
        default_factory=dict
    )  # by rail; empty: in proportion to the rails' limits
    timeout_s: float = 300.0  # for joining, and for every blocking call
    # After this time without a sign of life from a rank's process, the rank is lost, or the rail to it is
    # down; 0: never. The agent of a rank that computes still answers. A killed rank is noticed sooner: by the
    # controller, and by TCP.
    peer_timeout_s: float = 5.0
    metrics: str = ""  # HOST:PORT for Prometheus, port 0 for any; empty: none
    deterministic: bool = False  # the split never follows measurements, so that results repeat bit for bit
    report: str = ""  # a file to which the rank writes what it did: see report_file.py
    report_every_s: float = 0.0  # how often it writes what it has done so far; 0: at its end only
    # Time for which a call of at most 64 KiB polls before it sleeps. Polling shortens the wake-up, but takes
    # processor time from other processes.
    spin_us: float = 0.0
    # Number of ranks that multicast at once in an allgather, the same on all ranks. 0: all ranks, which is
    # the fastest choice if links and switches can carry it.
    multicast_roots: int = 0
    costs: str = ""  # a JSON file with the learned costs of rails: read at the start, written at the end
    # CPUs of the progress threads: one thread that sends and receives, and one more per tree of an ina rail
    # if there are several CPUs and several trees. Callers then sleep until their call is done, and these
    # threads poll for `spin_us` in calls of any size. Empty: the thread that waits for a call does the work.
    progress_cpus: tuple[int, ...] = ()
    size_from: str = field(default="world_size", compare=False)  # the source of world_size
    rdma: str = "any"  # one of RDMA_PLACES: what carries rdma and netreduce rails
    traffic_class: int = 0  # of packets from an RDMA device: 4 times the DSCP, plus the two bits of ECN

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if not 0 <= self.rank < self.world_size:
            raise InvalidOption(
                f"rank {self.rank} in a world of {self.world_size}",
                f"0 to {max(self.world_size - 1, 0)}",
                "correct the rank or the world size",
            )
        if not self.timeout_s > 0:
            raise InvalidOption(
                f"timeout_s is {self.timeout_s}", "a positive number of seconds", "correct timeout_s"
            )
        if not self.peer_timeout_s >= 0:
            raise InvalidOption(
                f"peer_timeout_s is {self.peer_timeout_s}",
                "seconds, or 0 for never",
                "correct peer_timeout_s",
            )
        if not 0 <= self.report_every_s <= MAX_REPORT_EVERY_S:
            raise InvalidOption(
                f"report_every_s is {self.report_every_s}",
                f"0 to {MAX_REPORT_EVERY_S:g} seconds",
                "correct RAILWEAVE_REPORT_EVERY_S",
            )
        if not 0 <= self.spin_us <= MAX_SPIN_US:
            raise InvalidOption(
                f"spin_us is {self.spin_us}", f"0 to {MAX_SPIN_US:g} microseconds", "correct spin_us"
            )
        if not 0 <= self.multicast_roots <= MAX_MULTICAST_ROOTS:
            raise InvalidOption(
                f"multicast_roots is {self.multicast_roots}",
                f"0 to {MAX_MULTICAST_ROOTS} ranks",
                "correct multicast_roots",
            )
        if self.rdma not in RDMA_PLACES:
            raise InvalidOption(
                f"rdma is {self.rdma!r}", f"one of {', '.join(RDMA_PLACES)}", "correct RAILWEAVE_RDMA"
            )
        if not 0 <= self.traffic_class <= MAX_TRAFFIC_CLASS:
            raise InvalidOption(
                f"traffic_class is {self.traffic_class}",
                f"0 to {MAX_TRAFFIC_CLASS}, 4 times the DSCP",
                "correct RAILWEAVE_TRAFFIC_CLASS",
            )
        if self.world_size == 1:
            return
        if not self.rails:
            raise InvalidOption(
                "no rails are given",
                f"a cluster file, or rails as {RAIL_FORM}",
                "give cluster= or RAILWEAVE_CLUSTER, or rails= or RAILWEAVE_RAILS",
            )
        if not self.controller:
            raise InvalidOption(
                "no controller is given", "HOST:PORT", "give controller= or RAILWEAVE_CONTROLLER"
            )
        names = [rail.name for rail in self.rails]
        if len(set(names)) < len(names):
            raise InvalidOption(
                f"rails {', '.join(names)}", "different names", "rename one, as in NAME=KIND@INTERFACE"
            )
        check_shares(self.shares, names)


def check_shares(shares: Mapping[str, float], rails: Sequence[str]) -> None:
    """Refuse shares of unknown rails, invalid numbers, and shares that are all 0."""
    if not shares:
        return
    for name, share in shares.items():
        if name not in rails:
            raise InvalidOption(
                f"a share for rail {name!r}", f"one of {', '.join(rails)}", "correct the name"
            )
        if not 0 <= share < float("inf"):
            raise InvalidOption(
                f"share {share} of rail {name!r}", "a number, 0 or greater", "correct the share"
            )
    if sum(shares.values()) <= 0:
        raise InvalidOption(
            "all shares are 0", "one share above 0", "give one rail a share, or leave the shares out"
        )


def parse_rails(
    rails: str | Sequence[str | RailSpec], known: Mapping[str, RailSpec] = MappingProxyType({})
) -> tuple[RailSpec, ...]:
    """Parse rails from a comma-separated string or a sequence. A name alone selects a `known` rail."""
    given = [part.strip() for part in rails.split(",") if part.strip()] if isinstance(rails, str) else rails
    return tuple(rail if isinstance(rail, RailSpec) else _parse_rail(rail, known) for rail in given)


def _parse_rail(text: str, known: Mapping[str, RailSpec]) -> RailSpec:
    if text in known:
        return known[text]
    if known and "@" not in str(text):
        raise InvalidOption(
            f"rail {text!r} is no plane of this host in the cluster file",
            f"{', '.join(known)}, or {RAIL_FORM}",
            "correct the name",
        )
    return RailSpec.parse(text)


def parse_shares(text: str) -> dict[str, float]:
    """Parse `name=share,name=share`."""
    shares = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, share = part.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            raise InvalidOption(
                f"share {part!r}", "name=number, as in tcp=0.3", "correct RAILWEAVE_SHARES"
            ) from None
    return shares


def parse_cpus(cpus: str | Sequence[int]) -> tuple[int, ...]:
    """Parse CPUs from a sequence, or from a list such as 2-3,6, as `taskset` and cpusets write it."""
    if not isinstance(cpus, str):
        return tuple(dict.fromkeys(cpus))
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in cpus.split(","))):
        match = _CPUS.fullmatch(part)
        first, last = (int(match["first"]), int(match["last"] or match["first"])) if match else (0, -1)
        if not first <= last < MAX_CPUS:
            raise InvalidOption(
                f"progress_cpus {part!r}",
                f"numbers below {MAX_CPUS} and ranges, as in 2-3,6",
                "correct progress_cpus",
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def options_from(
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
    environment: Mapping[str, str] = os.environ,
) -> Options:
    """Return the options: arguments first, then RAILWEAVE_* (the argument's name in capitals) and LAUNCHERS.

    Controller and rails without either come from the cluster file.
    """
    rank_variable, size_variable = next(
        (names for names in LAUNCHERS if any(name in environment for name in names)), LAUNCHERS[0]
    )
    known, default_controller, access = _of_cluster(
        environment.get("RAILWEAVE_CLUSTER", "") if cluster is None else cluster, environment
    )
    if rails is None:
        rails = environment.get("RAILWEAVE_RAILS") or tuple(known.values())
    if shares is None:
        shares = parse_shares(environment.get("RAILWEAVE_SHARES", ""))
    if timeout_s is None:
        timeout_s = _number(environment, "RAILWEAVE_TIMEOUT_S", float, Options.timeout_s)
    if peer_timeout_s is None:
        peer_timeout_s = _number(environment, "RAILWEAVE_PEER_TIMEOUT_S", float, Options.peer_timeout_s)
    if spin_us is None:
        spin_us = _number(environment, "RAILWEAVE_SPIN_US", float, Options.spin_us)
    if progress_cpus is None:
        progress_cpus = environment.get("RAILWEAVE_PROGRESS_CPUS", "")
    return Options(
        rank=_number(environment, rank_variable, int) if rank is None else rank,
        world_size=_number(environment, size_variable, int) if world_size is None else world_size,
        rails=parse_rails(rails, known),
        size_from=size_variable if world_size is None else Options.size_from,
        job=environment.get("RAILWEAVE_JOB", Options.job) if job is None else job,
        controller=environment.get("RAILWEAVE_CONTROLLER", default_controller)
        if controller is None
        else controller,
        access=access,
        shares=dict(shares),
        timeout_s=timeout_s,
        peer_timeout_s=peer_timeout_s,
        metrics=environment.get("RAILWEAVE_METRICS", "") if metrics is None else metrics,
        deterministic=_switch(environment, "RAILWEAVE_DETERMINISTIC")
        if deterministic is None
        else deterministic,
        costs=environment.get("RAILWEAVE_COSTS", "") if costs is None else costs,
        report=environment.get("RAILWEAVE_REPORT", "") if report is None else report,
        report_every_s=_number(environment, "RAILWEAVE_REPORT_EVERY_S", float, 0.0),
        spin_us=spin_us,
        progress_cpus=parse_cpus(progress_cpus),
        multicast_roots=_number(environment, "RAILWEAVE_MULTICAST_ROOTS", int, 0)
        if multicast_roots is None
        else multicast_roots,
        rdma=environment.get("RAILWEAVE_RDMA", Options.rdma),
        traffic_class=_number(environment, "RAILWEAVE_TRAFFIC_CLASS", int, 0),
    )


def _of_cluster(path: str, environment: Mapping[str, str]) -> tuple[dict[str, RailSpec], str, Access]:
    """Return this machine's rails, the controller's address, and the credentials of the cluster file."""
    try:
        cluster = clusters.load(path) if path else None
        access = access_of(cluster, environment)
    except TopologyError as error:
        raise InvalidOption(str(error)) from None
    return (rails_of(cluster), cluster.controller, access) if cluster else ({}, "", access)


def rails_of(cluster: clusters.Cluster) -> dict[str, RailSpec]:
    """Return this machine's rails, one per plane."""
    host = this_host(cluster)
    return {
        plane: RailSpec(
            plane, cluster.kind(plane), interface_of(cluster, host, plane), cluster.rate_bps(plane)
        )
        for plane in cluster.planes
        if plane in cluster.hosts[host]
    }


def _switch(environment: Mapping[str, str], variable: str) -> bool:
    text = environment.get(variable, "")
    if text.lower() not in SWITCHES:
        raise InvalidOption(
            f"{variable} is {text!r}", "1 or 0, true or false", f"correct or unset {variable}"
        )
    return SWITCHES[text.lower()]


Number = TypeVar("Number", int, float)


def _number(
    environment: Mapping[str, str], variable: str, kind: type[Number], default: Number | None = None
) -> Number:
    text = environment.get(variable)
    if text is None and default is not None:
        return default
    if text is None:
        raise InvalidOption(
            f"{variable} is not set",
            "the number of this rank, and of all ranks",
            "give rank= and world_size=, set RANK and WORLD_SIZE, or start under torchrun, mpirun or srun",
        )
    try:
        return kind(text)
    except ValueError:
        raise InvalidOption(f"{variable} is {text!r}", "a number", f"correct or unset {variable}") from None
