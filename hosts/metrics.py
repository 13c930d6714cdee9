# SPDX-License-Identifier: Apache-2.0
"""A rank's metrics for Prometheus: every scrape reads the rails' current counts.

Names begin with `railweave_`. Labels are job, rank, rail, tree and group, as in the controller's metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from railweave.access import IN_CLEAR, Access
from railweave.hosts.errors import InvalidOption
from railweave.hosts.events import Decision
from railweave.hosts.reports import GroupReport, RailReport, Stats
from railweave.metrics_server import MetricsServer

RAIL_COUNTERS = {
    "slices": "Slices of tensors reduced.",
    "payload_bytes": "Bytes of tensors reduced.",
    "bytes_sent": "Bytes on the link, Ethernet headers included.",
    "bytes_received": "Bytes on the link, Ethernet headers included.",
    "packets_sent": "Packets on the link.",
    "packets_received": "Packets on the link.",
    "retransmissions": "Packets sent again.",
    "duplicates": "Packets received more than once.",
    "malformed": "Packets and connections refused.",
    "send_drops": "Packets that the kernel would not send.",
    "segmentation_refused": "Super-packets that the kernel would not cut.",
    "multicast_bytes": "Bytes of tensors sent once to all.",
    "fetched_bytes": "Bytes of multicast tensors that a peer had to send again.",
    "rings": "Times that a part of a tensor has gone round the ring of racks and ranks.",
    "ring_messages": "Messages sent in these rings.",
    "failures": "Times that the ranks have agreed to exclude the rail.",
}
RAIL_SECONDS = {"busy_s": "With a slice in progress.", "down_s": "Not in use because it had failed."}
RAIL_GAUGES = {
    "share": "Share of large tensors.",
    "epoch": "Number of the last decision about which rails live.",
    "incarnation": "Times that the rail was taken up again.",
}
RAIL_STATES = ("up", "down", "recovering")
GROUP_COUNTERS = {
    "contributions": "Chunks sent for the first time.",
    "results": "Results taken.",
    "retransmissions": "Chunks sent again.",
    "early_retransmissions": "Chunks sent again because later ones had their results.",
    "timeouts": "Expiries of the retransmission timer.",
    "stale": "Results of the group before a move.",
    "duplicates": "Results that were here already.",
    "mismatches": "Results of contributions that did not belong together.",
    "refused": "Packets malformed, of strangers, or impossible.",
    "probes_sent": "Probes sent.",
    "probes_answered": "Probes that came back.",
    "nonfinite_chunks": "Chunks that held NaN or Inf.",
    "moves": "Moves to another place.",
    "multicasts": "Slices that were multicast.",
    "multicast_bytes": "Bytes of tensors sent once to all.",
    "fetched_bytes": "Bytes of multicast tensors that a peer had to send again.",
    "answered_bytes": "Bytes of multicast tensors sent again to peers.",
}
GROUP_GAUGES = {
    "slots": "Chunks that may be in flight.",
    "in_flight": "Chunks in flight.",
    "window": "Chunks that are let in flight.",
    "rtt_s": "Smoothed round-trip time, seconds.",
    "error_bound": "Greatest error that fixed point can have caused in an element.",
}


class RankCollector:
    """Reads a communicator in the server's thread, as long as the communicator exists."""

    def __init__(
        self,
        job: str,
        rank: int,
        stats: Callable[[], Stats | None],
        decisions: Callable[[], Sequence[Decision]],
    ) -> None:
        """Collect what `stats` and `decisions` return."""
        self._labels = (job, str(rank))
        self._stats = stats
        self._decisions = decisions

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        stats = self._stats()
        if stats is None:
            return
        yield from self._of_rails(stats.rails)
        yield from self._of_groups(
            [(rail.name, tree, group) for rail in stats.rails for tree, group in enumerate(rail.groups)]
        )
        yield self._of_calls(self._decisions())

    def _of_rails(self, rails: Sequence[RailReport]) -> Iterator[Metric]:
        labels = ("job", "rank", "rail", "kind")
        things = [((rail.name, rail.kind), rail) for rail in rails]
        yield from self._families(
            CounterMetricFamily, "rail", {**RAIL_COUNTERS, **RAIL_SECONDS}, labels, things
        )
        yield from self._families(GaugeMetricFamily, "rail", RAIL_GAUGES, labels, things)
        states = GaugeMetricFamily(
            "railweave_rail_state", "1 of the state it is in.", labels=(*labels, "state")
        )
        for rail in rails:
            for state in RAIL_STATES:
                who = (*self._labels, rail.name, rail.kind, state)
                states.add_metric(who, float(rail.state == state))
        yield states

    def _of_groups(self, groups: Sequence[tuple[str, int, GroupReport]]) -> Iterator[Metric]:
        labels = ("job", "rank", "rail", "tree", "group")
        things = [((rail, str(tree), str(group.group)), group) for rail, tree, group in groups]
        yield from self._families(CounterMetricFamily, "group", GROUP_COUNTERS, labels, things)
        yield from self._families(GaugeMetricFamily, "group", GROUP_GAUGES, labels, things)

    def _families(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        what: str,
        texts: Mapping[str, str],
        labels: Sequence[str],
        things: Sequence[tuple[tuple[str, ...], RailReport | GroupReport]],
    ) -> Iterator[Metric]:
        """Return a metric per attribute; its name has the unit in full."""
        for name, text in texts.items():
            full = name.removesuffix("_s") + "_seconds" if name.endswith("_s") else name
            metric = family(f"railweave_{what}_{full}", text, labels=labels)
            for who, thing in things:
                metric.add_metric((*self._labels, *who), getattr(thing, name))
            yield metric

    def _of_calls(self, decisions: Sequence[Decision]) -> Metric:
        labels = ("job", "rank", "rail", "collective", "dtype", "op", "size_class", "reason")
        calls = CounterMetricFamily(
            "railweave_rail_calls", "Calls by class, and why the rail had no part in them.", labels=labels
        )
        counts: Counter[tuple[str, ...]] = Counter()  # decisions may differ only in their text
        for each in decisions:
            which = (each.rail, each.collective, each.dtype, each.op, str(each.size_class), each.reason)
            counts[which] += each.calls
        for what, count in counts.items():
            if count:
                calls.add_metric((*self._labels, *what), count)
        return calls


def serve(listen: str, collector: RankCollector, access: Access = IN_CLEAR) -> MetricsServer:
    """Answer scrapes at HOST:PORT, port 0 for a free one; with TLS if `access` has certificates.

    Raises InvalidOption if the address cannot be used.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidOption(f"metrics={listen!r}", "HOST:PORT, with port 0 for any", "correct the address")

    try:
        return MetricsServer(listen, collector.collect, access)
    except (OSError, OverflowError) as error:
        raise InvalidOption(
            f"metrics={listen!r}: {error}",
            "a free port on an address of this machine",
            "give each rank on a machine its own port, or port 0",
        ) from error
