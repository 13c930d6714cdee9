# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from railweave.hosts.errors import InvalidOption
from railweave.hosts.options import Options, RailSpec, options_from

ENVIRONMENT = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "RAILWEAVE_JOB": "digits",
    "RAILWEAVE_CONTROLLER": "10.255.0.250:9600",
    "RAILWEAVE_RAILS": "ina=ina@h3-ina/100000000, fast=tcp@h3-fast/10G,rdma@h3-rdma",
    "RAILWEAVE_SHARES": "ina=0.5,fast=0.25,rdma=0.25",
    "RAILWEAVE_TIMEOUT_S": "7.5",
    "RAILWEAVE_MULTICAST_ROOTS": "2",
    "RAILWEAVE_COSTS": "costs.json",
    "RAILWEAVE_RDMA": "device",
    "RAILWEAVE_TRAFFIC_CLASS": "106",
}


def test_everything_from_the_environment() -> None:
    assert options_from(environment=ENVIRONMENT) == Options(
        rank=2,
        world_size=4,
        rails=(
            RailSpec("ina", "ina", "h3-ina", 10**8),
            RailSpec("fast", "tcp", "h3-fast", 10**10),
            RailSpec("rdma", "rdma", "h3-rdma"),
        ),
        job="digits",
        controller="10.255.0.250:9600",
        shares={"ina": 0.5, "fast": 0.25, "rdma": 0.25},
        timeout_s=7.5,
        multicast_roots=2,
        costs="costs.json",
        rdma="device",
        traffic_class=106,
    )


@pytest.mark.parametrize(("text", "expected"), [("", False), ("0", False), ("1", True), ("True", True)])
def test_switches_are_read(text: str, expected: bool) -> None:
    environment = {**ENVIRONMENT, "RAILWEAVE_DETERMINISTIC": text}
    assert options_from(environment=environment).deterministic is expected
    assert options_from(deterministic=True, environment=environment).deterministic


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("RANK", "WORLD_SIZE"),  # torchrun
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # mpirun
        ("PMI_RANK", "PMI_SIZE"),  # MPICH's mpiexec, srun --mpi=pmi2
        ("SLURM_PROCID", "SLURM_NTASKS"),  # srun
    ],
)
def test_launchers_say_who_a_process_is(rank: str, size: str) -> None:
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in {"RANK", "WORLD_SIZE"}}
    options = options_from(environment={**environment, rank: "3", size: "6"})
    assert (options.rank, options.world_size) == (3, 6)
    assert options.size_from == size
    assert options_from(environment=ENVIRONMENT, world_size=4).size_from == "world_size"
    with pytest.raises(InvalidOption, match=f"{size} is not set"):
        options_from(environment={**environment, rank: "3"})


def test_one_launcher_counts_not_a_mixture() -> None:
    """If torchrun runs under srun, Slurm counts nodes and torchrun counts processes."""
    options = options_from(environment={**ENVIRONMENT, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
    assert (options.rank, options.world_size) == (2, 4)


def test_arguments_win() -> None:
    given = {"rank": 0, "world_size": 3, "shares": {}, "timeout_s": 1, "job": "a", "multicast_roots": 1}
    options = options_from(**given, rails=["tcp@eth1"], environment=ENVIRONMENT)
    expected = replace(
        options_from(environment=ENVIRONMENT), **given, rails=(RailSpec("tcp", "tcp", "eth1"),)
    )
    assert options == expected


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", ()), ("3", (3,)), ("2-3,6", (2, 3, 6)), (" 6, 2-4,3", (2, 3, 4, 6)), ("7-7", (7,))],
)
def test_cpus_are_read(text: str, cpus: tuple[int, ...]) -> None:
    environment = {**ENVIRONMENT, "RAILWEAVE_PROGRESS_CPUS": text}
    assert options_from(environment=environment).progress_cpus == cpus
    assert options_from(progress_cpus=text, environment=ENVIRONMENT).progress_cpus == cpus
    assert options_from(progress_cpus=[9], environment=environment).progress_cpus == (9,)


def test_a_world_of_one_needs_nothing_else() -> None:
    assert options_from(environment={"RANK": "0", "WORLD_SIZE": "1"}) == Options(0, 1)


NONSENSE = [
    ("RANK", "4", "rank 4 in a world of 4"),
    ("RANK", "first", "RANK is 'first'"),
    ("RAILWEAVE_RAILS", "", "no rails"),
    ("RAILWEAVE_RAILS", "tcp", "rail 'tcp': expected name=kind@interface or"),
    ("RAILWEAVE_RAILS", "a=tcp@eth0/fast", "rail 'a=tcp@eth0/fast': expected name=kind@interface or"),
    ("RAILWEAVE_RAILS", "a=udp@eth0", "rail 'a' is of kind 'udp': expected one of ina, tcp, rdma"),
    ("RAILWEAVE_RAILS", "a=tcp@eth0,a=ina@eth1", "rails a, a: expected different names"),
    ("RAILWEAVE_CONTROLLER", "", "no controller"),
    ("RAILWEAVE_SHARES", "ina=much", r"share 'ina=much': expected name=number, as in tcp=0\.3"),
    ("RAILWEAVE_SHARES", "tcp=1", "a share for rail 'tcp': expected one of ina, fast, rdma"),
    ("RAILWEAVE_SHARES", "ina=-1", "0 or greater"),
    ("RAILWEAVE_SHARES", "ina=nan", "0 or greater"),
    ("RAILWEAVE_SHARES", "ina=0", "all shares are 0"),
    ("RAILWEAVE_TIMEOUT_S", "0", "positive"),
    ("RAILWEAVE_REPORT_EVERY_S", "nan", "expected 0 to 3600 seconds"),
    ("RAILWEAVE_SPIN_US", "1001", "spin_us is 1001.0: expected 0 to 1000 microseconds"),
    ("RAILWEAVE_SPIN_US", "nan", "expected 0 to 1000 microseconds"),
    ("RAILWEAVE_SPIN_US", "soon", "RAILWEAVE_SPIN_US is 'soon': expected a number"),
    ("RAILWEAVE_PROGRESS_CPUS", "all", "progress_cpus 'all': expected numbers below 1024 and ranges"),
    ("RAILWEAVE_PROGRESS_CPUS", "1,3-2", "progress_cpus '3-2': expected numbers below 1024 and ranges"),
    ("RAILWEAVE_PROGRESS_CPUS", "-1", "progress_cpus '-1': expected numbers below 1024 and ranges"),
    ("RAILWEAVE_PROGRESS_CPUS", "0-9999", "progress_cpus '0-9999': expected numbers below 1024 and ranges"),
    ("RAILWEAVE_PROGRESS_CPUS", "9" * 5000, "progress_cpus '9999"),
    ("RAILWEAVE_MULTICAST_ROOTS", "-1", "multicast_roots is -1: expected 0 to 65535 ranks"),
    ("RAILWEAVE_DETERMINISTIC", "maybe", "expected 1 or 0"),
    ("RAILWEAVE_RDMA", "nic", "rdma is 'nic': expected one of any"),
    ("RAILWEAVE_TRAFFIC_CLASS", "256", "expected 0 to 255"),
]


@pytest.mark.parametrize(("variable", "text", "message"), NONSENSE)
def test_nonsense_is_named(variable: str, text: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        options_from(environment={**ENVIRONMENT, variable: text})


def test_a_rail_that_is_no_text_is_named() -> None:
    with pytest.raises(InvalidOption, match="rail 7: expected name=kind@interface or"):
        options_from(rails=[7], environment=ENVIRONMENT)  # type: ignore[list-item]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InvalidOption, match="RANK is not set"):
        options_from(environment={})
