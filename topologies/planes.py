# SPDX-License-Identifier: Apache-2.0
"""The `planes` topology: every host has one NIC on each plane, and each plane is one switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from railweave.topologies.errors import TopologyError
from railweave.topologies.model import (
    ALGORITHM,
    DEFAULT_RAILS,
    P4_KINDS,
    RAIL_KINDS,
    Nic,
    Plane,
    Switch,
    Topology,
)

MANAGEMENT_NETWORK = "10.255.0.0/16"
CONTROLLER_ADDRESS = "10.255.0.250"
CONTROLLER_PORT = 9600
P4RUNTIME_PORT = 9559
DEFAULT_RATE_BPS = 100_000_000

MAX_FAN_IN = 31  # children of one aggregating switch: bits 0 to 30 of its bitmap
MAX_HOSTS = 1024
MAX_PLANES = 40


def management_address(host_number: int) -> str:
    """Return the address of host h1, h2, … on the management network. Numbers count from 1.

    The first 199 hosts get 10.255.0.1 to .199, because single switches use .200 and up. The other hosts'
    addresses start with 10.255.200 and up.
    """
    if host_number < 200:
        return f"10.255.0.{host_number}"
    return f"10.255.{200 + host_number // 256}.{host_number % 256}"


def plane_names(rails: Sequence[str]) -> list[str]:
    """Name the planes: the rail's kind if only one rail has this kind, else kind0, kind1, …

    Planes of algorithms have the algorithm's name.

    >>> plane_names(["ina", "tcp", "tcp", "./my/sum"])
    ['ina', 'tcp0', 'tcp1', 'sum']
    """
    kinds = [Path(algorithm or kind).name for kind, algorithm in map(kind_and_algorithm, rails)]
    total = Counter(kinds)
    seen: Counter[str] = Counter()
    names = []
    for kind in kinds:
        names.append(kind if total[kind] == 1 else f"{kind}{seen[kind]}")
        seen[kind] += 1
    return names


def kind_and_algorithm(rail: str) -> tuple[str, str]:
    """Return the kind of a rail, and its algorithm if it names one, such as `switchml` or `./sum`."""
    if rail in RAIL_KINDS:
        return rail, ""
    return ALGORITHM, str(Path(rail).resolve()) if "/" in rail else rail


def planes(
    hosts: int = 4,
    rails: Sequence[str] = DEFAULT_RAILS,
    rates: int | Sequence[int] = DEFAULT_RATE_BPS,
) -> Topology:
    """Return N hosts on one plane per entry of `rails`, which is a kind or an algorithm.

    `rates` is the rate of every link in bit/s, or one rate per plane. 0 leaves links unshaped.
    Raises TopologyError for an unknown rail, too few or too many hosts, and a wrong number of rates.
    """
    check_rails(rails)
    _check_hosts(hosts, rails)
    per_plane = rate_of_each_plane(rates, len(rails))
    names = tuple(f"h{number}" for number in range(1, hosts + 1))
    return Topology(
        name="planes",
        hosts=names,
        planes=tuple(
            single_switch(index, name, rail, rate, names)
            for index, (name, rail, rate) in enumerate(zip(plane_names(rails), rails, per_plane, strict=True))
        ),
    )


def single_switch(index: int, name: str, rail: str, rate_bps: int, hosts: Sequence[str]) -> Plane:
    """Return plane number `index` as one switch with a port per host."""
    network = index + 1
    kind, algorithm = kind_and_algorithm(rail)
    label = interface_label(index, name, kind)
    switch = Switch(
        name=f"s-{label.replace('netreduce', 'nr')}",
        p4runtime=f"10.255.0.{200 + index}:{P4RUNTIME_PORT}" if kind in P4_KINDS else "",
        device_id=network,
    )
    nics = tuple(
        nic(network, label, host, number, switch.name, number) for number, host in enumerate(hosts, start=1)
    )
    return Plane(name, kind, network_of(network), rate_bps, (switch,), nics, algorithm=algorithm)


def interface_label(index: int, name: str, kind: str) -> str:
    """Return a plane's name in names of interfaces, which have at most 15 characters."""
    return f"alg{index}" if kind == ALGORITHM else name


def network_of(network: int) -> str:
    """Return the IPv4 network of plane `network`, counted from 1."""
    return f"10.{network}.0.0/16"


def nic(network: int, plane: str, host: str, number: int, switch: str, port: int) -> Nic:
    """Return the NIC of host `number`, counted from 1, by the address plan."""
    return Nic(
        host=host,
        interface=f"{host}-{plane}",
        address=f"10.{network}.{number // 256}.{number % 256}",
        mac=f"02:00:00:{network:02x}:{number // 256:02x}:{number % 256:02x}",
        switch=switch,
        port=port,
    )


def check_rails(rails: Sequence[str]) -> None:
    """Raise TopologyError for rails that are unknown, too many or none."""
    if not rails:
        raise TopologyError(
            "no rails are given", f"one at least of {', '.join(RAIL_KINDS)}", "name the rails"
        )
    for rail in rails:
        if rail not in RAIL_KINDS or rail == ALGORITHM:
            _check_algorithm(rail)
    if len(rails) > MAX_PLANES:
        raise TopologyError(
            f"{len(rails)} rails", f"{MAX_PLANES} at most, for which there are addresses", "name fewer"
        )


def _check_algorithm(rail: str) -> None:
    from railweave import sdk  # noqa: PLC0415 - loads slowly, and the other kinds do not need it
    from railweave.sdk.plane import require_rail  # noqa: PLC0415

    if "/" not in rail and rail not in sdk.names():
        kinds = ", ".join(kind for kind in RAIL_KINDS if kind != ALGORITHM)
        known = f"one of {kinds}, an algorithm ({', '.join(sdk.names())}), or the path of its folder"
        raise TopologyError(f"rail {rail!r}", known, "correct the name")
    try:
        require_rail(sdk.find(rail))
    except sdk.AlgorithmError as error:
        raise TopologyError(f"rail {rail!r}: {error}") from None


def _check_hosts(hosts: int, rails: Sequence[str]) -> None:
    aggregated = any(kind_and_algorithm(rail)[0] in P4_KINDS for rail in rails)
    most = MAX_FAN_IN if aggregated else MAX_HOSTS
    if not 1 <= hosts <= most:
        why = "the fan-in of one aggregating switch" if aggregated else "the limit of a lab"
        raise TopologyError(f"{hosts} hosts", f"1 to {most}, {why}", "correct the number")


def rate_of_each_plane(rates: int | Sequence[int], count: int) -> Sequence[int]:
    """Return one rate per plane from one rate for all or one for each. TopologyError for another number."""
    listed = [rates] * count if isinstance(rates, int) else list(rates)
    if len(listed) == 1:
        listed *= count
    if len(listed) != count:
        raise TopologyError(
            f"{len(listed)} rates for {count} planes", "one, or one per plane", "correct the list of rates"
        )
    for rate in listed:
        if rate < 0:
            raise TopologyError(
                f"a rate of {rate} bit/s", "a positive rate, or 0 for unshaped", "correct the rate"
            )
    return listed
