# SPDX-License-Identifier: Apache-2.0
"""Find this machine in a cluster file, and its interface on each plane."""

from __future__ import annotations

import socket

from railweave.hosts.errors import InvalidOption
from railweave.hosts.interfaces import addresses
from railweave.topologies.cluster import Cluster


def this_host(cluster: Cluster) -> str:
    """Return this machine's name in the file, found by its host name, or else by its addresses."""
    name = socket.gethostname()
    for own in (name, name.partition(".")[0]):
        if own in cluster.hosts:
            return own
    here = addresses()
    for host, nics in cluster.hosts.items():
        if any(nic.address in here for nic in nics.values()):
            return host
    raise InvalidOption(
        f"this machine, {name!r} with the addresses {', '.join(here)}, is none of the cluster's hosts",
        f"one of {', '.join(cluster.hosts)}",
        "call one of them by this machine's name, or give the addresses of its NICs",
    )


def interface_of(cluster: Cluster, host: str, plane: str) -> str:
    """Return the name of this machine's interface on a plane; InvalidOption if none has the address."""
    nic, here = cluster.hosts[host][plane], addresses()
    if name := nic.interface or here.get(nic.address):
        return name
    raise InvalidOption(
        f"host {host!r}, plane {plane!r}: {nic.address} is not the first address of any interface",
        f"an interface with this first address; this machine has {', '.join(here)}",
        "give the interface this address, or correct the file",
    )
