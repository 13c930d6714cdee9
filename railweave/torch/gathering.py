# SPDX-License-Identifier: Apache-2.0
"""Rendezvous of a process group's ranks in its store, and the choice of the interface between them.

The store may still hold keys of an earlier run. So each rank writes a random name, and rank 0 answers to this
name with the random name of the new job. Stale keys have other names.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from railweave.hosts.errors import InvalidOption, JoinTimeout
from railweave.hosts.interfaces import interface
from railweave.hosts.options import RailSpec

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05  # between two reads of the store


class Place(NamedTuple):
    """The machine and the address of a rank."""

    machine: str  # ranks with the same value reach each other over loopback
    address: str  # at which the others can reach the rank, or a loopback address; empty if unknown


def place_of(store: Any, rails: Sequence[RailSpec]) -> Place:
    """Return this rank's place. Its address is the one towards the store's host, else the first rail's."""
    boot, network = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
    address = address_towards(host_of(store))
    if rails and (not address or _is_loopback(address)):
        address = interface(rails[0].interface).address
    return Place(f"{boot.read_text().strip()} {network.stat().st_ino}", address)


def host_of(store: Any) -> str:
    """Return the store's host; MASTER_ADDR or '' if the store has none."""
    inner = getattr(store, "_underlying_non_prefix_store", store)
    return str(getattr(inner, "host", "")) or os.environ.get("MASTER_ADDR", "")


def address_towards(host: str) -> str:
    """Return the address from which this machine reaches a host; '' if it cannot reach the host."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host or "127.0.0.1", 9))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def interface_among(places: Sequence[Place], rank: int) -> str:
    """Return the interface over which this rank reaches the others.

    It leads to the store's host or, if that is loopback, to a rank of another machine. If a rank has no such
    interface, all ranks raise InvalidOption.
    """
    for other, place in enumerate(places):
        if not _ways(place, places):
            raise InvalidOption(
                f"the ranks are on several machines, and rank {other} finds no interface to the others",
                "a host name that does not resolve to loopback there, as MASTER_ADDR or in init_method",
                "correct the name, or set RAILWEAVE_RAILS (such as tcp@eth0) there",
            )
    mine = places[rank]
    for address in _ways(mine, places):
        source = address if address == mine.address else address_towards(address)
        if source and (name := _interface_with(source)):
            return name
    raise InvalidOption(
        f"rank {rank} reaches the others by {', '.join(_ways(mine, places))}",
        "an interface that has this as its first address",
        "set RAILWEAVE_RAILS (such as tcp@eth0)",
    )


def _ways(mine: Place, places: Sequence[Place]) -> list[str]:
    """Return this rank's address if the others can reach it, and addresses of other machines."""
    if all(place.machine == mine.machine for place in places):
        return [address for address in (mine.address, "127.0.0.1") if address]
    found = [place.address for place in places if place.machine != mine.machine]
    return [address for address in (mine.address, *found) if address and not _is_loopback(address)]


def _is_loopback(address: str) -> bool:
    return address.startswith("127.")


def _interface_with(address: str) -> str:
    for _, name in socket.if_nameindex():
        try:
            if interface(name).address == address:
                return name
        except InvalidOption:
            continue  # the interface has no address
    return ""


# ------------------------------------------------------------ in the store


def gather(store: Any, rank: int, size: int, mine: Place, deadline_s: float) -> tuple[str, list[Place]]:
    """Wait for all ranks; return the job's name, which rank 0 chooses, and the places of all ranks.

    Raises JoinTimeout, which names the missing ranks.
    """
    end = time.monotonic() + deadline_s
    if rank == 0:
        job = f"{os.environ.get('RAILWEAVE_JOB', 'torch')}.{secrets.token_hex(8)}"
        _set(store, f"{job}/at/0", mine)
        _welcome(store, job, size, end, deadline_s)
    else:
        name = secrets.token_hex(8)
        store.set(f"railweave/hello/{rank}", name)
        if not _wait(store, f"railweave/welcome/{name}", end):
            raise _missing([0], size, deadline_s)
        job = store.get(f"railweave/welcome/{name}").decode()
        _set(store, f"{job}/at/{rank}", mine)
        if not _wait(store, f"{job}/all", end):
            missing = [other for other in range(size) if not store.check([f"{job}/at/{other}"])]
            raise _missing(missing, size, deadline_s)
    return job, [Place(*json.loads(store.get(f"{job}/at/{other}"))) for other in range(size)]


def _welcome(store: Any, job: str, size: int, end: float, deadline_s: float) -> None:
    """Answer each rank's hello with the job's name, until all ranks have written their places."""
    missing, welcomed, pause_s = list(range(1, size)), set(), FIRST_PAUSE_S
    while missing:
        for other in missing:
            if store.check([f"railweave/hello/{other}"]):
                name = store.get(f"railweave/hello/{other}").decode()
                if name not in welcomed:
                    welcomed.add(name)
                    store.set(f"railweave/welcome/{name}", job)
                    pause_s = FIRST_PAUSE_S
        missing = [other for other in missing if not store.check([f"{job}/at/{other}"])]
        if missing and time.monotonic() > end:
            raise _missing(missing, size, deadline_s)
        if missing:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    store.set(f"{job}/all", "")


def _set(store: Any, key: str, place: Place) -> None:
    store.set(key, json.dumps(place))


def _wait(store: Any, key: str, end: float) -> bool:
    """Return whether a key appears in time. After a timeout, kinds of store raise different errors."""
    try:
        store.wait([key], timedelta(seconds=max(0.001, end - time.monotonic())))
    except RuntimeError:
        return bool(store.check([key]))
    return True


def _missing(ranks: Sequence[int], size: int, deadline_s: float) -> JoinTimeout:
    named = ", ".join(map(str, ranks))
    return JoinTimeout(
        f"not all ranks have joined within {deadline_s:g} s; missing: {named}",
        f"{size} ranks",
        "start the missing ranks, or correct WORLD_SIZE",
    )
