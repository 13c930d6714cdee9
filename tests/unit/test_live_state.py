# SPDX-License-Identifier: Apache-2.0
"""The contents of the live page, computed from samples of counters."""

from __future__ import annotations

from typing import Any

from railweave.experiments.live.state import LiveState, Sample, links_of
from railweave.topologies.clos import leaf_spine
from railweave.topologies.planes import planes

TOPOLOGY = planes(2, ["ina", "tcp"])
LINKS = links_of(TOPOLOGY)
H1_INA = LINKS[0].interface


def state() -> LiveState:
    return LiveState(TOPOLOGY, LINKS, "a title")


def rail(name: str, payload: int = 0, **values: Any) -> dict[str, Any]:
    default = {"state": "up", "reason": "", "failures": 0, "last_failure": "", "groups": []}
    return {"name": name, "payload_bytes": payload, **default, **values}


def ranks(*rails: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {rank: {"rails": rails} for rank in range(2)}


def tree(**values: Any) -> dict[str, Any]:
    where = {"job": "run", "rail": "ina", "plane": "ina", "tree": 0, "group": 7}
    return {**where, "root": "s-ina", "switches": ["s-ina"], "slots": 512, "moves": 0, "paused": "", **values}


def controller(
    *trees: dict[str, Any], problem: str = "", switch: str = "s-ina", of_switch: str = ""
) -> dict[str, Any]:
    report = {"name": switch, "slots": 8192, "used": 512, "problem": of_switch}
    return {"problem": problem, "switches": [report], "trees": list(trees)}


def texts(shown: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["kind"], event["text"]) for event in shown["events"]]


def test_links_are_those_of_hosts_and_between_switches() -> None:
    topology = leaf_spine(racks=2, hosts=1, spines=2, rails=["ina"], rates=[100])
    found = [(link.lower, link.upper, link.interface) for link in links_of(topology)]
    assert ("h1", "leaf1", "h1-ina") in found
    assert [(lower, upper) for lower, upper, _ in found if lower == "leaf2"] == [
        ("leaf2", "spine1"),
        ("leaf2", "spine2"),
    ]
    assert len({interface for *_, interface in found}) == len(found) == 6


def test_rates_are_bits_per_second_between_samples_up_and_down() -> None:
    live = state()
    first = live.take(Sample(10.0, {H1_INA: (1000, 5000)}))
    assert first["links"][0] == (0, 0)
    shown = live.take(Sample(10.5, {H1_INA: (2000, 10_000)}))
    assert shown["links"][0] == (80_000, 16_000)
    assert shown["rails"]["ina"]["bps"] == 40_000  # mean of two hosts, one of them silent
    assert (first["t"], shown["t"]) == (0.0, 0.5)
    lost = live.take(Sample(10.75, {}))  # for example, after the end of a namespace
    assert lost["links"][0] == (0, 0)


def test_a_link_whose_counters_begin_anew_has_no_negative_rate() -> None:
    live = state()
    live.take(Sample(0.0, {H1_INA: (1000, 1000)}))
    assert live.take(Sample(1.0, {H1_INA: (0, 0)}))["links"][0] == (0, 0)


def test_the_split_is_what_the_rails_have_carried_of_late() -> None:
    live = state()
    live.take(Sample(0.0, ranks=ranks(rail("ina", 0), rail("tcp", 1000))))
    shown = live.take(Sample(0.25, ranks=ranks(rail("ina", 3000), rail("tcp", 2000))))
    assert [shown["rails"][name]["share"] for name in ("ina", "tcp")] == [0.75, 0.25]
    for step in range(9):
        shown = live.take(Sample(0.5 + step, ranks=ranks(rail("ina", 3000), rail("tcp", 2000))))
    assert shown["rails"]["ina"]["share"] is None  # nothing was carried


def test_a_rail_that_dies_and_returns_is_an_event_with_its_reason() -> None:
    live = state()
    live.take(Sample(0.0, ranks=ranks(rail("ina"), rail("tcp"))))
    down = rail("ina", state="down", failures=1, reason="rank 0: no carrier")
    one_sees = {**ranks(rail("ina"), rail("tcp")), 1: {"rails": [down, rail("tcp")]}}
    shown = live.take(Sample(0.25, ranks=one_sees))
    assert texts(shown) == [("loss", "rail ina excluded: rank 0: no carrier")]
    assert shown["rails"]["ina"]["state"] == "down"
    trial = rail("ina", state="recovering", failures=1)
    shown = live.take(Sample(0.5, ranks=ranks(trial, rail("tcp"))))
    assert (texts(shown), shown["rails"]["ina"]["state"]) == ([], "recovering")
    shown = live.take(Sample(0.75, ranks=ranks(rail("ina", failures=1), rail("tcp"))))
    assert texts(shown) == [("return", "rail ina readmitted")]
    assert [event["n"] for event in live.greeting()["events"]] == [1, 2]


def test_a_death_between_two_samples_is_not_missed() -> None:
    live = state()
    live.take(Sample(0.0, ranks=ranks(rail("ina"), rail("tcp"))))
    after = rail("ina", failures=1, last_failure="rank 1: silent")
    shown = live.take(Sample(0.25, ranks=ranks(after, rail("tcp"))))
    assert texts(shown) == [
        ("loss", "rail ina excluded: rank 1: silent"),
        ("return", "rail ina readmitted"),
    ]


def test_faults_are_shown_with_the_next_sample() -> None:
    live = state()
    live.take(Sample(5.0))
    live.happened(5.1, "fault", "link cut h1 s-ina")
    shown = live.take(Sample(5.25, cut=[0]))
    assert shown["events"] == [{"n": 1, "t": 0.1, "kind": "fault", "text": "link cut h1 s-ina"}]
    assert shown["cut"] == [0]
    assert live.take(Sample(5.5))["events"] == []


def test_trees_have_their_slots_and_what_is_in_flight() -> None:
    live = state()
    groups = [{"group": 7, "in_flight": 40}, {"group": 8, "in_flight": 99}]
    reports = ranks(rail("ina", groups=groups), rail("tcp"))
    reports[1] = {"rails": [rail("ina", groups=[{"group": 7, "in_flight": 60}]), rail("tcp")]}
    shown = live.take(Sample(0.0, ranks=reports, controller=controller(tree())))
    assert shown["switches"] == {"s-ina": {"slots": 8192, "used": 512, "problem": ""}}
    assert (shown["trees"][0]["slots"], shown["trees"][0]["in_flight"]) == (512, 60)


def test_trees_that_pause_and_move_and_services_that_do_not_answer_are_events() -> None:
    live = state()
    seen = []
    for at, found in enumerate(
        [
            controller(tree()),
            controller(tree(paused="a rank reports a stall")),
            controller(tree(moves=1, root="s2")),
            controller(tree(moves=1, root="s2", paused="again")),
            controller(tree(moves=1, root="s2"), of_switch="connection refused"),
            controller(problem="gone"),
            controller(tree(moves=1, root="s2")),
        ]
    ):
        seen += texts(live.take(Sample(float(at), controller=found)))
    assert seen == [
        ("loss", "tree 0 of ina paused: a rank reports a stall"),
        ("return", "tree 0 of ina moved, root s2"),
        ("loss", "tree 0 of ina paused: again"),
        ("loss", "s-ina does not answer: connection refused"),
        ("return", "tree 0 of ina goes on"),
        ("loss", "controller does not answer: gone"),
        ("return", "s-ina answers again"),
        ("return", "controller answers again"),
    ]
