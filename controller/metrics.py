# SPDX-License-Identifier: Apache-2.0
"""Metrics of the controller for Prometheus. Each scrape reads the current counters of the switches.

Names begin with `railweave_`. Labels are job, rail, tree, group, plane and switch. Ranks use the same labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from railweave.access import IN_CLEAR, Access
from railweave.controller import telemetry
from railweave.controller.errors import ControllerError
from railweave.controller.groups import Groups
from railweave.controller.jobs import Group
from railweave.errors import explain
from railweave.metrics_server import MetricsServer
from railweave.v1 import controller_pb2 as pb

SCRAPE_S = 8.0  # Prometheus gives up after 10 s by default

TREE = ("job", "rail", "tree", "group")
SWITCH = ("plane", "switch")


async def collect(groups: Groups) -> list[Metric]:
    """Return the current state of jobs and switches. Call it in the event loop of `groups`."""
    fabric, running = groups.fabric, groups.running()
    found = await asyncio.gather(
        *(telemetry.of_switch(switch, running) for switch in fabric.switches()),
        *telemetry.of_ring_switches(fabric),
        *telemetry.of_algorithm_switches(fabric),
    )
    up = GaugeMetricFamily("railweave_switch_up", "1 if the switch answers, else 0.", labels=SWITCH)
    for switch in found:
        up.add_metric((switch.plane, switch.name), not switch.problem)
    alive = [switch for switch in found if not switch.problem]
    return [up, *_of_switches(alive), *_of_groups(alive), *_of_jobs(running)]


def _of_jobs(groups: Iterable[Group]) -> Iterator[Metric]:
    ranks = GaugeMetricFamily("railweave_job_ranks", "Number of ranks of the job.", labels=("job",))
    reason = (*TREE[:2], "reason")
    refused = GaugeMetricFamily(
        "railweave_rail_refused", "1 for each rail without a tree, with the reason.", labels=reason
    )
    moves = CounterMetricFamily(
        "railweave_tree_moves", "Moves of the tree to another place in the network.", labels=TREE[:3]
    )
    paused = GaugeMetricFamily("railweave_tree_paused", "1 while the tree is paused.", labels=TREE[:3])
    for group in groups:
        ranks.add_metric((group.job,), group.size)
        for rail, why in group.refusals.items():
            refused.add_metric((group.job, rail, why), 1)
        for tree in group.trees:
            labels = (group.job, tree.rail, str(tree.index))
            moves.add_metric(labels, tree.moves)
            paused.add_metric(labels, tree.pause is not None)
    yield from (ranks, refused, moves, paused)


def _of_switches(counters: Iterable[pb.SwitchCounters]) -> Iterator[Metric]:
    slots = GaugeMetricFamily(
        "railweave_switch_slots", "Slots of the switch by use: used or free.", labels=(*SWITCH, "use")
    )
    about = "Packets by decision and other counters of the P4 program."
    packets = CounterMetricFamily("railweave_switch_packets", about, labels=(*SWITCH, "decision"))
    for switch in counters:
        slots.add_metric((switch.plane, switch.name, "used"), switch.slots_used)
        slots.add_metric((switch.plane, switch.name, "free"), switch.slots - switch.slots_used)
        for decision, count in switch.packets.items():
            packets.add_metric((switch.plane, switch.name, decision), count)
    yield from (slots, packets)


def _of_groups(counters: Iterable[pb.SwitchCounters]) -> Iterator[Metric]:
    labels = (*TREE, *SWITCH)
    slots = GaugeMetricFamily("railweave_group_slots", "Slots of a tree in the switch.", labels=labels)
    about = "Packets of the group's members in the switch, by outcome."
    packets = CounterMetricFamily("railweave_group_packets", about, labels=(*labels, "outcome"))
    for switch in counters:
        for group in switch.groups:
            where = (group.job, group.rail, str(group.tree), str(group.group), switch.plane, switch.name)
            slots.add_metric(where, group.slots)
            for outcome, count in group.packets.items():
                packets.add_metric((*where, outcome), count)
    yield from (slots, packets)


@asynccontextmanager
async def serving(groups: Groups, address: str, access: Access = IN_CLEAR) -> AsyncIterator[str]:
    """Serve `/metrics` at HOST:PORT, with TLS if `access` has certificates. An empty address means no server.

    Yields the address. For port 0 it has the free port that was chosen.
    """
    if not address:
        yield ""
        return
    loop = asyncio.get_running_loop()

    def from_server() -> list[Metric]:
        collected = asyncio.run_coroutine_threadsafe(collect(groups), loop)
        try:
            return collected.result(SCRAPE_S)
        except TimeoutError:
            raise TimeoutError(
                explain(
                    f"the switches have not answered within {SCRAPE_S:g} s",
                    "their counters",
                    "read the controller's log, and scrape again",
                )
            ) from None

    host, _, port = address.rpartition(":")
    try:
        server = MetricsServer(f"{host or '127.0.0.1'}:{port}", from_server, access)
    except (OSError, ValueError, OverflowError) as error:
        raise ControllerError(
            f"--metrics {address}: {error}", "HOST:PORT that is free", "name another port, or port 0"
        ) from error
    try:
        yield server.address
    finally:
        await asyncio.to_thread(server.close)
