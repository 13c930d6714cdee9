# SPDX-License-Identifier: Apache-2.0
"""Telemetry for Prometheus: every scrape reads the switches' counters anew.

Names begin with `railweave_`; labels are job, rail, tree, group, plane and switch, as agents have them, too.
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
from railweave.metrics_server import MetricsServer
from railweave.v1 import controller_pb2 as pb

SCRAPE_S = 8.0  # Prometheus gives up after 10 s by default

TREE = ("job", "rail", "tree", "group")
SWITCH = ("plane", "switch")


async def collect(groups: Groups) -> list[Metric]:
    """Return the current state of the jobs and the fabric of `groups`, whose event loop runs this."""
    fabric, running = groups.fabric, groups.running()
    found = await asyncio.gather(
        *(telemetry.of_switch(switch, running) for switch in fabric.switches()),
        *telemetry.of_ring_switches(fabric),
    )
    up = GaugeMetricFamily("railweave_switch_up", "Whether it answers.", labels=SWITCH)
    for switch in found:
        up.add_metric((switch.plane, switch.name), not switch.problem)
    alive = [switch for switch in found if not switch.problem]
    return [up, *_of_switches(alive), *_of_groups(alive), *_of_jobs(running)]


def _of_jobs(groups: Iterable[Group]) -> Iterator[Metric]:
    ranks = GaugeMetricFamily("railweave_job_ranks", "World size.", labels=("job",))
    reason = (*TREE[:2], "reason")
    refused = GaugeMetricFamily("railweave_rail_refused", "Rails that got no tree.", labels=reason)
    moves = CounterMetricFamily("railweave_tree_moves", "To other places.", labels=TREE[:3])
    paused = GaugeMetricFamily("railweave_tree_paused", "Trees that hold still.", labels=TREE[:3])
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
    slots = GaugeMetricFamily("railweave_switch_slots", "Slots, by use.", labels=(*SWITCH, "use"))
    about = "Packets for the switch, by what became of them."
    packets = CounterMetricFamily("railweave_switch_packets", about, labels=(*SWITCH, "decision"))
    for switch in counters:
        slots.add_metric((switch.plane, switch.name, "used"), switch.slots_used)
        slots.add_metric((switch.plane, switch.name, "free"), switch.slots - switch.slots_used)
        for decision, count in switch.packets.items():
            packets.add_metric((switch.plane, switch.name, decision), count)
    yield from (slots, packets)


def _of_groups(counters: Iterable[pb.SwitchCounters]) -> Iterator[Metric]:
    labels = (*TREE, *SWITCH)
    slots = GaugeMetricFamily("railweave_group_slots", "Slots of a group in a switch.", labels=labels)
    about = "Packets of a group's members in a switch, by what became of them."
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
    """Serve `/metrics` at HOST:PORT ('': nowhere), with TLS if `access` has it.

    Yields the address, with the port that was free for 0.
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
            raise TimeoutError(f"the switches have not answered within {SCRAPE_S:g} s") from None

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
