# SPDX-License-Identifier: Apache-2.0
"""Metrics of a rank for Prometheus. Each scrape reads the current counts of the rails.

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
    "slices": "Slices carried.",
    "payload_bytes": "Bytes of tensors carried.",
    "bytes_sent": "Bytes sent on the wire, with Ethernet headers.",
    "bytes_received": "Bytes received on the wire, with Ethernet headers.",
    "packets_sent": "Packets sent on the wire.",
    "packets_received": "Packets received on the wire.",
    "retransmissions": "Packets sent again.",
    "duplicates": "Packets received more than once.",
    "malformed": "Packets and connections that the agent refused.",
    "send_drops": "Packets that the kernel did not send.",
    "segmentation_refused": "Super-packets that the kernel did not segment.",
    "multicast_bytes": "Bytes of tensors sent once to all ranks.",
    "fetched_bytes": "Bytes of multicast tensors received again from a peer.",
    "rings": "Parts of tensors that went round a ring of racks and single ranks.",
    "ring_messages": "Messages sent in these rings.",
    "failures": "How often the ranks have excluded the rail.",
}
RAIL_SECONDS = {"busy_s": "Seconds with a slice in progress.", "down_s": "Seconds of exclusion."}
RAIL_GAUGES = {
    "share": "Present share of large tensors, 0 to 1.",
    "epoch": "Number of the ranks' last decision about the rails in use.",
    "incarnation": "Restarts of the rail's main channel, failed trials included.",
}
RAIL_STATES = ("up", "down", "recovering")
GROUP_COUNTERS = {
    "contributions": "Chunks sent for the first time.",
    "results": "Results received.",
    "retransmissions": "Chunks sent again.",
    "early_retransmissions": "Chunks sent again because results of later chunks came first.",
    "timeouts": "Expirations of the retransmission timer.",
    "stale": "Results from before a move.",
    "duplicates": "Results that had arrived before.",
    "mismatches": "Results of contributions that did not belong together.",
    "refused": "Packets that the agent refused: malformed, from strangers, or impossible.",
    "probes_sent": "Probes sent to the switches.",
    "probes_answered": "Answers to probes.",
    "nonfinite_chunks": "Chunks with NaN or Inf, which took a second exchange.",
    "moves": "Moves of the tree to another place in the network.",
    "multicasts": "Slices that were multicast.",
    "multicast_bytes": "Bytes of tensors sent once to all ranks.",
    "fetched_bytes": "Bytes of multicast tensors received again from a peer.",
    "answered_bytes": "Bytes of multicast tensors sent again to peers.",
}
GROUP_GAUGES = {
    "slots": "Slots of the tree, which limit the chunks in flight.",
    "in_flight": "Chunks sent whose results have not come.",
    "window": "Present limit of the chunks in flight, by the measured delay.",
    "rtt_s": "Smoothed round-trip time in seconds.",
    "error_bound": "Greatest error that fixed point can have caused in an element so far.",
}


class RankCollector:
    """Read the counts of a communicator, in the server's thread, as long as the communicator exists."""

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
            "railweave_rail_state", "1 for the present state, 0 for the others.", labels=(*labels, "state")
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
        """Return a metric per attribute. Its name ends in the full name of the unit."""
        for name, text in texts.items():
            full = name.removesuffix("_s") + "_seconds" if name.endswith("_s") else name
            metric = family(f"railweave_{what}_{full}", text, labels=labels)
            for who, thing in things:
                metric.add_metric((*self._labels, *who), getattr(thing, name))
            yield metric

    def _of_calls(self, decisions: Sequence[Decision]) -> Metric:
        labels = ("job", "rank", "rail", "collective", "dtype", "op", "size_class", "reason")
        calls = CounterMetricFamily(
            "railweave_rail_calls",
            "Calls by class; reason: why the rail carried no part, empty if it did.",
            labels=labels,
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
    """Serve the metrics at HOST:PORT, with TLS if `access` has certificates. Port 0 means a free port.

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
