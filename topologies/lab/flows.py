# SPDX-License-Identifier: Apache-2.0
"""Count the bytes that hosts send on their interfaces, by protocol and ports, with nft before the queue.

The kernel hands super-packets to nft, which counts the headers of each only once. The frames on the link have
more bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

TABLE = "railweave_flows"
COMMAND = ("nft", "-n", "-j", "list", "table", "netdev", TABLE)
MOST_FLOWS = 65535  # limit of counted flows per interface
NAMES = {1: "icmp", 6: "tcp", 17: "udp"}
NOT_IP = "no IP (ARP)"


@dataclass(frozen=True)
class Flow:
    """Packets of one protocol from one port to another. Protocols other than TCP and UDP have no ports."""

    protocol: str
    ports: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Name the flow by its lower port, which is usually the service's port."""
        return f"{self.protocol} port {min(self.ports)}" if self.ports else self.protocol


@dataclass(frozen=True)
class Flows:
    """Bytes by flow, Ethernet headers included."""

    bytes_sent: Mapping[Flow, int] = field(default_factory=dict)
    handshake_bytes: int = 0  # the part of `bytes_sent` in TCP segments with SYN or RST

    def __sub__(self, before: Flows) -> Flows:
        """Return the bytes sent since `before`."""
        sent = Counter(self.bytes_sent)
        sent.subtract(before.bytes_sent)
        return Flows(+sent, self.handshake_bytes - before.handshake_bytes)


def rules(interfaces: Iterable[str]) -> str:
    """Return an nft script that counts packets that leave through interfaces, behind all other hooks."""
    return "".join(
        f"""
table netdev {TABLE} {{
  set ports-{name} {{
    type inet_proto . inet_service . inet_service; size {MOST_FLOWS}; flags dynamic;
  }}
  set protocols-{name} {{ type inet_proto; size 256; flags dynamic; }}
  counter handshakes-{name} {{ }}
  counter others-{name} {{ }}
  chain {name} {{
    type filter hook egress device "{name}" priority 10;
    ether type != ip counter name others-{name} accept
    ip frag-off & 0x1fff != 0 update @protocols-{name} {{ ip protocol counter }} accept
    ip protocol != {{ tcp, udp }} update @protocols-{name} {{ ip protocol counter }} accept
    tcp flags & (syn | rst) != 0 counter name handshakes-{name}
    update @ports-{name} {{ ip protocol . th sport . th dport counter }}
  }}
}}
"""
        for name in interfaces
    )


def parse(text: str) -> dict[str, Flows]:
    """Read the output of COMMAND: flows by interface."""
    sent: dict[str, dict[Flow, int]] = {}
    handshakes: dict[str, int] = {}
    for item in json.loads(text)["nftables"]:
        what = next(iter(item))
        if what not in ("set", "counter"):
            continue
        found = item[what]
        kind, _, interface = found["name"].partition("-")
        flows = sent.setdefault(interface, {})
        if kind == "handshakes":
            handshakes[interface] = found["bytes"]
        elif kind == "others" and found["bytes"]:
            flows[Flow(NOT_IP)] = found["bytes"]
        for element in found.get("elem", ()):
            flows[_flow(element["elem"]["val"])] = element["elem"]["counter"]["bytes"]
    return {name: Flows(flows, handshakes.get(name, 0)) for name, flows in sent.items()}


def _flow(value: Any) -> Flow:
    protocol, *ports = value["concat"] if isinstance(value, dict) else [value]
    return Flow(NAMES.get(protocol, f"IP protocol {protocol}"), tuple(ports))
