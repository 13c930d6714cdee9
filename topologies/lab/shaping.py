# SPDX-License-Identifier: Apache-2.0
"""Link rates and loss, as commands of tc and nft."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from railweave.topologies.model import DEFAULT_MTU

ETHERNET = 14
FRAME = ETHERNET + DEFAULT_MTU
NFT_SCALE = 1_000_000
GSO_MAX_BYTES = 65_536  # the kernel's default
UNSHAPED_LIMIT_PACKETS = 10_000
TABLE = "railweave_classes"  # nft's
INTERACTIVE = "0:6"  # a socket's SO_PRIORITY, as nft writes it
# Classes of a shaped queue. The code point selects the first and the last class. Between them, the sources of
# frames share the link round-robin, with one more class for all other sources.
URGENT, OTHERS, LOWER_EFFORT = "2:1", "2:2", "2:3"
SOURCES = tuple(f"2:{16 + place:x}" for place in range(16))


@dataclass(frozen=True)
class TokenBucket:
    """Parameters of a token bucket filter, in the units of tc."""

    rate_bps: int
    burst_bytes: int
    limit_bytes: int
    frame_bytes: int

    @classmethod
    def of(cls, rate_bps: int, mtu: int = DEFAULT_MTU, usual_bps: int = 0) -> TokenBucket:
        """Choose burst and queue for a link's rate. `usual_bps` is the rate without a fault.

        One millisecond of burst covers the kernel's timer delays and passes short super-packets whole, but is
        only 0.3 % of a 4 MiB message at 100 Mbit/s. The queue holds a quarter of a second and at least 1 MiB.
        This is more than any rail keeps in flight by default, so that only injected loss loses packets.
        A packet longer than the burst would block the queue for ever. Hosts make super-packets for the usual
        rate.
        """
        return cls(
            rate_bps=rate_bps,
            burst_bytes=max(max(rate_bps, usual_bps) // 8 // 1000, 4 * FRAME, 2 * (ETHERNET + mtu)),
            limit_bytes=max(rate_bps // 8 // 4, 1 << 20),
            frame_bytes=ETHERNET + mtu,
        )

    @property
    def limit_frames(self) -> int:
        """The queue's limit in full frames, the unit of an interface's queue length."""
        return self.limit_bytes // FRAME

    def interface_command(self, interface: str) -> str:
        """Return the line for `ip -batch` that fits an interface to this bucket.

        The kernel's TCP then makes no super-packets longer than the burst. Longer ones would be cut into
        frames here, and each frame would cost every machine on its path one timer and one wake-up.
        """
        longest = min(self.burst_bytes, GSO_MAX_BYTES)
        return f"link set {interface} txqueuelen {self.limit_frames} gso_max_size {longest}"

    def commands(self, interface: str) -> list[str]:
        """Return the lines for `tc -batch` that shape the packets that leave through `interface`.

        Packets wait in classes. A network control datagram does not wait behind a quarter of a second of
        data, because it would report a failure late. Sources share the link round-robin with equal bytes. In
        one queue, sources with larger windows would get more of a trunk than others.
        """
        every = f"htb rate 1tbit burst 10mb cburst 10mb quantum {self.frame_bytes}"  # TBF alone limits
        priorities = {URGENT: 0, OTHERS: 1, LOWER_EFFORT: 2} | dict.fromkeys(SOURCES, 1)
        return [
            f"qdisc replace dev {interface} root noqueue",
            self.rate_command(interface),
            f"qdisc add dev {interface} parent 1:1 handle 2: htb default {OTHERS.partition(':')[2]}",
            *(
                f"class add dev {interface} parent 2: classid {name} {every} prio {priority}"
                for name, priority in priorities.items()
            ),
        ]

    def rate_command(self, interface: str) -> str:
        """Return the line that gives an interface this rate. A shaped interface keeps its queued packets."""
        return (
            f"qdisc replace dev {interface} root handle 1: tbf rate {self.rate_bps}bit "
            f"burst {self.burst_bytes} limit {self.limit_bytes}"
        )


def counting_queue(interface: str) -> str:
    """Return the line for `tc -batch` that gives an unshaped interface a queue for its counters."""
    return f"qdisc replace dev {interface} root pfifo limit {UNSHAPED_LIMIT_PACKETS}"


def queue_commands(
    interface: str,
    rate_bps: int,
    mtu: int = DEFAULT_MTU,
    *,
    counted: bool = False,
    shaped: bool = False,
    usual_bps: int = 0,
) -> list[str]:
    """Return the lines for `tc -batch` that make an interface send at `rate_bps`; 0 is unshaped.

    An interface without a rate has no queue, unless its frames are `counted`. A `shaped` interface keeps its
    queued packets, which hosts have made for its `usual_bps`.
    """
    if not rate_bps:
        return [counting_queue(interface) if counted else f"qdisc replace dev {interface} root noqueue"]
    bucket = TokenBucket.of(rate_bps, mtu, usual_bps)
    return [bucket.rate_command(interface)] if shaped else bucket.commands(interface)


def class_rules(interfaces: Iterable[str], sources: Sequence[str]) -> str:
    """Return an nft script that puts frames into classes of the interfaces' queues.

    The source address selects the class. Network control (CS6) leaves first, and so do packets of urgent
    sockets (SO_PRIORITY) at their sender. Lower effort (CS1) leaves last. The code point is in the frame, but
    a switch does not see the priority of the sender's socket.
    """
    places = ", ".join(
        f"{address} : {SOURCES[place % len(SOURCES)]}" for place, address in enumerate(sources)
    )
    rules = [
        f"add table netdev {TABLE}",
        f"add map netdev {TABLE} sources {{ type ipv4_addr : classid; elements = {{ {places} }}; }}",
    ]
    for name in interfaces:
        rules.append(
            f'add chain netdev {TABLE} {name} {{ type filter hook egress device "{name}" priority 0; }}'
        )
        urgent = f"meta priority {INTERACTIVE} meta priority set {URGENT} accept"
        rules.append(f"add rule netdev {TABLE} {name} {urgent}")
        rules.append(f"add rule netdev {TABLE} {name} meta priority set ip saddr map @sources")
        for point, priority in (("cs6", URGENT), ("cs1", LOWER_EFFORT)):
            rules.append(f"add rule netdev {TABLE} {name} ip dscp {point} meta priority set {priority}")
    return "\n".join([*rules, ""])


def bridge_loss_rules(loss: float) -> str:
    """Return an nft script that lets a bridge drop UDP frames at random, and count them."""
    threshold = round(loss * NFT_SCALE)
    return (
        "table bridge railweave {\n"
        "  chain loss {\n"
        "    type filter hook forward priority 0; policy accept;\n"
        f"    ip protocol udp numgen random mod {NFT_SCALE} < {threshold} counter drop\n"
        "  }\n"
        "}\n"
    )
