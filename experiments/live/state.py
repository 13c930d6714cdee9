# SPDX-License-Identifier: Apache-2.0
"""The state that the live page shows, computed from samples of counters, without I/O and without a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from railweave.topologies.lab.namespaces import interface_of_port
from railweave.topologies.model import Topology

RATE_SAMPLES = 2  # intervals between samples over which rates are computed
CARRIED_SAMPLES = 8  # intervals between samples over which the rails' shares are computed
KEPT_EVENTS = 100
UP, RECOVERING, DOWN = "up", "recovering", "down"

Traffic = Mapping[str, tuple[int, int]]  # bytes received and sent, by interface
Report = Mapping[str, Any]  # a line of `hosts.report_file`


@dataclass(frozen=True)
class Link:
    """A link of a plane. `lower` is a host, or the switch nearer to the hosts."""

    lower: str
    upper: str
    plane: str
    interface: str  # name of the link's interface at `lower`
    rate_bps: int


@dataclass(frozen=True)
class Sample:
    """All values that were read at one time. `at` is in seconds of any clock."""

    at: float
    traffic: Traffic = field(default_factory=dict)
    ranks: Mapping[int, Report] = field(default_factory=dict)  # reports of the running ranks
    controller: Report = field(default_factory=dict)  # a line of `live.controller`; empty: none yet
    cut: Sequence[int] = ()  # links that are cut by buttons, by number


def links_of(topology: Topology) -> list[Link]:
    """Return all links, those of hosts first in each plane."""
    found = []
    for plane in topology.planes:
        for nic in plane.nics:
            found.append(Link(nic.host, nic.switch, plane.name, nic.interface, plane.rate_bps))
        for trunk in plane.trunks:
            interface = interface_of_port(trunk.lower, trunk.lower_port)
            found.append(Link(trunk.lower, trunk.upper, plane.name, interface, plane.rate_of(trunk)))
    return found


class LiveState:
    """The state of a running lab."""

    def __init__(self, topology: Topology, links: Sequence[Link], title: str) -> None:
        """Begin without events."""
        self._topology = topology
        self._links = links
        self._title = title
        self._start: float | None = None
        self._traffic: deque[tuple[float, Traffic]] = deque(maxlen=RATE_SAMPLES + 1)
        self._carried: deque[dict[str, int]] = deque(maxlen=CARRIED_SAMPLES + 1)
        self._rails: dict[str, tuple[str, int]] = {}  # state and failures
        self._trees: dict[tuple[str, str, int], dict[str, Any]] = {}  # by job, rail and number
        self._problems: dict[str, str] = {}  # of switches and the controller
        self._events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self._count = self._shown = 0  # number of events, and number of events that samples have shown

    def greeting(self) -> dict[str, Any]:
        """Return the constant part of the state, and the events so far."""
        planes = [
            {
                "name": plane.name,
                "kind": plane.kind,
                "rate_bps": plane.rate_bps,
                "levels": [[switch.name for switch in level] for level in plane.levels()],
            }
            for plane in self._topology.planes
        ]
        return {
            "title": self._title,
            "hosts": self._topology.hosts,
            "planes": planes,
            "links": [asdict(link) for link in self._links],
            "events": list(self._events),
        }

    def happened(self, at: float, kind: str, text: str) -> None:
        """Add an event. Its `kind` is fault, repair, loss, return or news."""
        self._count += 1
        self._events.append({"n": self._count, "t": self._since(at), "kind": kind, "text": text})

    def take(self, sample: Sample) -> dict[str, Any]:
        """Return the state at a sample. Add the events that follow from the sample."""
        self._traffic.append((sample.at, sample.traffic))
        rates = [self._rates(link) for link in self._links]
        rails = self._take_rails(sample, rates)
        switches, trees = self._take_controller(sample)
        new = [event for event in self._events if event["n"] > self._shown]
        self._shown = self._count
        return {
            "t": self._since(sample.at),
            "ranks": len(sample.ranks),
            "links": rates,
            "rails": rails,
            "switches": switches,
            "trees": trees,
            "cut": list(sample.cut),
            "events": new,
        }

    def _since(self, at: float) -> float:
        if self._start is None:
            self._start = at
        return round(at - self._start, 3)

    def _rates(self, link: Link) -> tuple[int, int]:
        """Return the bits per second up and down a link."""
        (first, before), (last, now) = self._traffic[0], self._traffic[-1]
        if last <= first or link.interface not in before or link.interface not in now:
            return 0, 0
        (down0, up0), (down1, up1) = before[link.interface], now[link.interface]
        scale = 8 / (last - first)
        return round(max(up1 - up0, 0) * scale), round(max(down1 - down0, 0) * scale)

    def _take_rails(self, sample: Sample, rates: Sequence[tuple[int, int]]) -> dict[str, dict[str, Any]]:
        reports: dict[str, list[Report]] = {plane.name: [] for plane in self._topology.planes}
        for rank in sample.ranks.values():
            for rail in rank["rails"]:
                reports[rail["name"]].append(rail)
        self._carried.append({n: sum(rail["payload_bytes"] for rail in r) for n, r in reports.items()})
        carried = {n: max(self._carried[-1][n] - self._carried[0][n], 0) for n in reports}
        total = sum(carried.values())
        shown = {}
        for name, found in reports.items():
            up = [rates[i][0] for i, link in enumerate(self._links) if self._is_nic(link, name)]
            state, reason, failures = self._take_rail(sample.at, name, found)
            shown[name] = {
                "bps": round(sum(up) / len(up)) if up else 0,  # sent, mean of hosts
                "share": round(carried[name] / total, 4) if total else None,
                "state": state,
                "reason": reason,
                "failures": failures,
            }
        return shown

    def _is_nic(self, link: Link, plane: str) -> bool:
        return link.plane == plane and link.lower in self._topology.hosts

    def _take_rail(self, at: float, name: str, reports: Sequence[Report]) -> tuple[str, str, int]:
        """Return a rail's state, its reason and the number of failures; "", "" and 0 without reports."""
        if not reports:
            return "", "", 0
        states = {rail["state"] for rail in reports}
        state = next((bad for bad in (DOWN, RECOVERING) if bad in states), UP)
        failures = max(rail["failures"] for rail in reports)
        reason = next((rail["reason"] for rail in reports if rail["reason"]), "")
        before, failed = self._rails.get(name, (UP, 0))
        self._rails[name] = state, max(failures, failed)
        if before == UP and (state != UP or failures > failed):
            why = reason or next((rail["last_failure"] for rail in reports if rail["last_failure"]), "")
            self.happened(at, "loss", f"rail {name} excluded" + (f": {why}" if why else ""))
            before = DOWN
        if before != UP and state == UP:
            self.happened(at, "return", f"rail {name} readmitted")
        return state, reason, failures

    def _take_controller(self, sample: Sample) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        found = sample.controller
        problems = {"controller": found.get("problem", "")}
        switches = {}
        for switch in found.get("switches", ()):
            problems[switch["name"]] = switch["problem"]
            switches[switch["name"]] = {key: switch[key] for key in ("slots", "used", "problem")}
        for name, problem in problems.items():
            if bool(problem) != bool(self._problems.get(name)):
                text = f"{name} does not answer: {problem}" if problem else f"{name} answers again"
                self.happened(sample.at, "loss" if problem else "return", text)
        self._problems |= problems
        in_flight: dict[tuple[str, int], int] = {}
        for rank in sample.ranks.values():
            for rail in rank["rails"]:
                for group in rail["groups"]:
                    key = (rail["name"], group["group"])
                    in_flight[key] = max(in_flight.get(key, 0), group["in_flight"])
        for tree in found.get("trees", ()):
            self._take_tree(sample.at, tree)
        trees = [
            {**tree, "in_flight": in_flight.get((tree["rail"], tree["group"]), 0)}
            for tree in found.get("trees", ())
        ]
        return switches, trees

    def _take_tree(self, at: float, tree: dict[str, Any]) -> None:
        key = (tree["job"], tree["rail"], tree["tree"])
        before = self._trees.get(key, tree)
        self._trees[key] = tree
        name = f"tree {tree['tree']} of {tree['rail']}"
        if tree["paused"] and not before["paused"]:
            self.happened(at, "loss", f"{name} paused: {tree['paused']}")
        if tree["moves"] > before["moves"]:
            self.happened(at, "return", f"{name} moved, root {tree['root'] or 'none'}")
        elif before["paused"] and not tree["paused"]:
            self.happened(at, "return", f"{name} goes on")
