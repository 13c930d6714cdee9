# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host's network interfaces."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass

from railweave.hosts.errors import InvalidOption

SIOCGIFADDR, SIOCGIFHWADDR = 0x8915, 0x8927  # netdevice(7)


@dataclass(frozen=True)
class Interface:
    """A network interface with an IPv4 address."""

    name: str
    address: str
    mac: str


def addresses() -> dict[str, str]:
    """Return the names of this host's interfaces by the first IPv4 address of each."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        found = {_address(probe, name): name for _, name in socket.if_nameindex()}
    return {address: name for address, name in found.items() if address}


def _address(probe: socket.socket, name: str) -> str:
    request = struct.pack("256s", name.encode())
    try:
        return socket.inet_ntoa(fcntl.ioctl(probe, SIOCGIFADDR, request)[20:24])
    except OSError:
        return ""


def interface(name: str) -> Interface:
    """Look an interface up by name. InvalidOption if it does not exist or has no IPv4 address."""
    names = [known for _, known in socket.if_nameindex()]
    if name not in names:
        raise InvalidOption(
            f"this host has no interface {name!r}",
            f"one of {', '.join(names)}",
            "correct the interface of the rail",
        )
    request = struct.pack("256s", name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        address = _address(probe, name)
        if not address:
            raise InvalidOption(
                f"interface {name!r} has no IPv4 address",
                "an address on the network of its rail",
                f"give it one: ip address add ADDRESS/LENGTH dev {name}",
            )
        mac = fcntl.ioctl(probe, SIOCGIFHWADDR, request)[18:24]
    return Interface(name, address, mac.hex(":"))
