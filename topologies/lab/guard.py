# SPDX-License-Identifier: Apache-2.0
"""The source guard of plain bridges as nft rules. `p4src/stages/guard.p4` is its counterpart in P4 switches.

A host's port accepts only frames with its NIC's MAC and IPv4 address, also in ARP, and without VLAN tags.
Trunks lead to switches that guard their own ports. Frames from all other ports are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from railweave.topologies.model import Nic

TABLE: Final = "railweave_guard"
COUNTER: Final = "forged_sources"
COUNT_COMMAND: Final = ("nft", "--json", "list", "counter", "bridge", TABLE, COUNTER)
"""Shows what the guard of the bridge in this namespace has dropped; `dropped` reads its answer."""

NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the source of a host that has no address yet
_FORGED: Final = f"counter name {COUNTER} drop"


def guard_rules(hosts: Mapping[str, Nic], trunks: Iterable[str]) -> str:
    """Return an nft script that makes a bridge drop forged sources before it learns from them.

    `hosts` are the NICs at its ports, by the ports' interfaces. `trunks` lead to other switches.
    """
    stations = [f'"{port}" . {nic.mac}' for port, nic in hosts.items()]
    sources = [
        f'"{port}" . {nic.mac} . {address}'
        for port, nic in hosts.items()
        for address in (nic.address, NO_ADDRESS)
    ]
    return (
        f"table bridge {TABLE} {{\n"
        f"  counter {COUNTER} {{ }}\n"
        + _set("trunks", "iifname", [f'"{port}"' for port in trunks])
        + _set("stations", "iifname . ether saddr", stations)
        + _set("sources", "iifname . ether saddr . ip saddr", sources)
        + "  chain guard {\n"
        "    type filter hook prerouting priority dstnat; policy accept;\n"
        "    iifname @trunks accept\n"
        f"    iifname . ether saddr != @stations {_FORGED}\n"
        f"    ether type {{ 8021q, 8021ad }} {_FORGED}\n"
        f"    meta protocol arp iifname . arp saddr ether . arp saddr ip != @sources {_FORGED}\n"
        f"    meta protocol ip iifname . ether saddr . ip saddr != @sources {_FORGED}\n"
        "  }\n"
        "}\n"
    )


def dropped(answer: str) -> int:
    """Return the number of frames that a guard has dropped, from the output of `COUNT_COMMAND`."""
    (packets,) = (item["counter"]["packets"] for item in json.loads(answer)["nftables"] if "counter" in item)
    return int(packets)


def _set(name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    contents = f"elements = {{ {listed} }}; " if listed else ""
    return f"  set {name} {{ typeof {kind}; {contents}}}\n"
