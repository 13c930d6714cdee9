# SPDX-License-Identifier: Apache-2.0
"""Link rates and loss, as commands of tc and nft."""

from __future__ import annotations

from dataclasses import dataclass

FRAME = 1514  # Ethernet header and MTU
NFT_SCALE = 1_000_000
UNSHAPED_LIMIT_PACKETS = 10_000


@dataclass(frozen=True)
class TokenBucket:
    """Parameters of a token bucket filter, in the units of tc."""

    rate_bps: int
    burst_bytes: int
    limit_bytes: int

    @classmethod
    def of(cls, rate_bps: int) -> TokenBucket:
        """Choose burst and queue for a link's rate.

        One millisecond of burst rides out the kernel's timers and lets short super-packets through
        whole, yet is 0.3 % of a 4 MiB message at 100 Mbit/s. The queue holds a quarter of a second and at
        least 1 MiB, more than any rail keeps in flight by default, so that only injected loss loses packets.
        """
        return cls(
            rate_bps=rate_bps,
            burst_bytes=max(rate_bps // 8 // 1000, 4 * FRAME),
            limit_bytes=max(rate_bps // 8 // 4, 1 << 20),
        )

    def command(self, interface: str) -> str:
        """Return the line for `tc -batch` that shapes what leaves through `interface`."""
        return (
            f"qdisc replace dev {interface} root tbf rate {self.rate_bps}bit "
            f"burst {self.burst_bytes} limit {self.limit_bytes}"
        )


def counting_queue(interface: str) -> str:
    """Return the line for `tc -batch` that gives an unshaped interface a queue, whose counters are wanted."""
    return f"qdisc replace dev {interface} root pfifo limit {UNSHAPED_LIMIT_PACKETS}"


def queue_command(interface: str, rate_bps: int, *, counted: bool = False) -> str:
    """Return the line for `tc -batch` that makes an interface send at `rate_bps`; 0 is unshaped.

    A token bucket that gets another rate keeps the frames that wait in it. An interface without a rate has
    no queue, unless its frames are to be `counted`.
    """
    if rate_bps:
        return TokenBucket.of(rate_bps).command(interface)
    return counting_queue(interface) if counted else f"qdisc replace dev {interface} root noqueue"


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
