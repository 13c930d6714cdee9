# SPDX-License-Identifier: Apache-2.0
"""Link rates and loss, as commands of tc and nft."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from railweave.topologies.model import DEFAULT_MTU

ETHERNET = 14
FRAME = ETHERNET + DEFAULT_MTU
NFT_SCALE = 1_000_000
UNSHAPED_LIMIT_PACKETS = 10_000
URGENT = "railweave_urgent"  # nft's table


@dataclass(frozen=True)
class TokenBucket:
    """Parameters of a token bucket filter, in the units of tc."""

    rate_bps: int
    burst_bytes: int
    limit_bytes: int

    @classmethod
    def of(cls, rate_bps: int, mtu: int = DEFAULT_MTU) -> TokenBucket:
        """Choose burst and queue for a link's rate.

        One millisecond of burst rides out the kernel's timers and lets short super-packets through
        whole, yet is 0.3 % of a 4 MiB message at 100 Mbit/s. The queue holds a quarter of a second and at
        least 1 MiB, more than any rail keeps in flight by default, so that only injected loss loses packets.
        No frame may be longer than the burst.
        """
        return cls(
            rate_bps=rate_bps,
            burst_bytes=max(rate_bps // 8 // 1000, 4 * FRAME, 2 * (ETHERNET + mtu)),
            limit_bytes=max(rate_bps // 8 // 4, 1 << 20),
        )

    @property
    def limit_frames(self) -> int:
        """The queue in full frames, as the length of an interface's queue is given."""
        return self.limit_bytes // FRAME

    def commands(self, interface: str) -> list[str]:
        """Return the lines for `tc -batch` that shape what leaves through `interface`.

        What waits is in three bands by priority, so that a network control datagram does not wait for
        a quarter of a second of data: it would report a failure late. Applied again with another rate,
        they keep what waits.
        """
        return [
            f"qdisc replace dev {interface} root handle 1: tbf rate {self.rate_bps}bit "
            f"burst {self.burst_bytes} limit {self.limit_bytes}",
            f"qdisc replace dev {interface} parent 1:1 handle 2: pfifo_fast",
        ]


def counting_queue(interface: str) -> str:
    """Return the line for `tc -batch` that gives an unshaped interface a queue, whose counters are wanted."""
    return f"qdisc replace dev {interface} root pfifo limit {UNSHAPED_LIMIT_PACKETS}"


def queue_commands(
    interface: str, rate_bps: int, mtu: int = DEFAULT_MTU, *, counted: bool = False
) -> list[str]:
    """Return the lines for `tc -batch` that make an interface send at `rate_bps`; 0 is unshaped.

    An interface without a rate has no queue, unless its frames are to be `counted`.
    """
    if rate_bps:
        return TokenBucket.of(rate_bps, mtu).commands(interface)
    return [counting_queue(interface) if counted else f"qdisc replace dev {interface} root noqueue"]


def urgent_rules(interfaces: Iterable[str]) -> str:
    """Return an nft script by which network control (CS6) leaves first, and lower effort (CS1) last.

    Switches forget what priority a frame had at its sender; the code point is in the frame.
    """
    rules = [f"add table netdev {URGENT}"]
    for name in interfaces:
        rules.append(
            f'add chain netdev {URGENT} {name} {{ type filter hook egress device "{name}" priority 0; }}'
        )
        for point, priority in (("cs6", 6), ("cs1", 2)):
            rules.append(f"add rule netdev {URGENT} {name} ip dscp {point} meta priority set 0:{priority}")
    return "\n".join([*rules, ""])


def bridge_loss_rules(loss: float) -> str:
    """Return an nft script by which a bridge drops UDP frames at random, and counts them."""
    threshold = round(loss * NFT_SCALE)
    return (
        "table bridge railweave {\n"
        "  chain loss {\n"
        "    type filter hook forward priority 0; policy accept;\n"
        f"    ip protocol udp numgen random mod {NFT_SCALE} < {threshold} counter drop\n"
        "  }\n"
        "}\n"
    )
