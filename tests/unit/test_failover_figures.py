# SPDX-License-Identifier: Apache-2.0
"""The figures of a fault, computed from calls."""

from __future__ import annotations

import random

import pytest

from railweave.experiments import fault_kinds as kinds
from railweave.experiments.errors import OptionError
from railweave.experiments.failover import run
from railweave.experiments.failover.figures import BASELINE_S, Window, curve, figures
from railweave.experiments.failover.values import FailoverOptions
from railweave.experiments.trace import Call, RankError, RankTrace, Slice
from railweave.topologies.named import named
from railweave.topologies.planes import planes

STEP_S = 0.01  # duration of a call
SIZE = 1000  # bytes of a call on each rail
INJECTED, REPAIR_BEGIN, REPAIRED, END = 10.0, 10.8, 10.85, 13.0


def trace(*, pause_s: float, back: float) -> RankTrace:
    """Return calls on rails a and b. The call at the fault pauses. Then b is unused until `back`."""
    calls, now = [], INJECTED - 1
    while now < END + 0.1:
        begin, end = now, now + STEP_S
        dead = end > INJECTED and begin < back
        if begin < INJECTED <= end:
            end = INJECTED + pause_s
        rails = "a" if dead else "ab"
        calls.append(Call(begin, end, tuple(Slice(rail, begin, end, SIZE) for rail in rails)))
        now = end
    return RankTrace(calls=calls, rails={"a": {}, "b": {}})


def test_pauses_detours_and_returns_are_those_of_the_slowest_rank() -> None:
    traces = [trace(pause_s=0.05, back=11.5), trace(pause_s=0.12, back=11.6)]
    found = figures(traces, "b", Window(INJECTED, REPAIR_BEGIN, REPAIRED, END))
    assert found.pause_s == pytest.approx(0.12, abs=STEP_S)
    assert found.usual_s == pytest.approx(STEP_S, abs=STEP_S / 10)
    assert found.return_pause_s == pytest.approx(STEP_S, abs=STEP_S / 10)
    assert found.reroute_s == pytest.approx(0.12)
    assert found.readmit_s == pytest.approx(11.6 + STEP_S - REPAIRED, abs=1.5 * STEP_S)
    assert found.used
    assert found.before_bps == pytest.approx(2 * SIZE * 8 / STEP_S, rel=0.01)
    assert found.during_bps == pytest.approx(SIZE * 8 / STEP_S, rel=0.05)
    assert found.after_bps == pytest.approx(2 * SIZE * 8 / STEP_S, rel=0.01)


def test_a_rank_that_never_goes_on_pauses_until_the_end() -> None:
    stuck = trace(pause_s=0.05, back=11.5)
    stuck.calls = [call for call in stuck.calls if call.end < INJECTED]
    found = figures(
        [trace(pause_s=0.05, back=11.5), stuck], "b", Window(INJECTED, REPAIR_BEGIN, REPAIRED, END)
    )
    assert found.pause_s == pytest.approx(END - INJECTED, abs=2 * STEP_S)
    assert (found.reroute_s, found.readmit_s, found.after_bps) == (None, None, None)


def test_a_slice_that_began_before_the_repair_is_no_readmission() -> None:
    late = RankTrace(
        calls=[
            Call(9.0, 11.0, (Slice("b", 9.0, 11.0, SIZE),)),
            Call(11.0, 11.5, (Slice("b", 11.0, 11.5, SIZE),)),
        ]
    )
    assert late.first_use("b", REPAIRED) == 11.5
    assert late.first_use("b", 11.2) is None


def test_the_curve_holds_every_byte_of_its_time() -> None:
    traces = [trace(pause_s=0.05, back=11.5)]
    found = curve(traces, Window(INJECTED, REPAIR_BEGIN, REPAIRED, END))
    assert found.begin_s == -BASELINE_S
    assert found.repaired_s == pytest.approx(REPAIRED - INJECTED)
    drawn = sum(found.bps["a"]) * found.bin_s / 8
    begin = INJECTED - BASELINE_S
    inside = [call for call in traces[0].calls if begin <= call.begin and call.end <= END]
    assert drawn == pytest.approx(SIZE * len(inside), abs=8 * SIZE)
    silent = round((BASELINE_S + 0.5) / found.bin_s)  # b is down
    assert found.bps["b"][silent] == 0
    assert found.bps["a"][silent] > 0


def test_calls_are_read_as_workers_tell_them() -> None:
    found = RankTrace()
    found.take({"event": "joined", "at": 4.0, "seed": 3, "rails": ["a", "b"]})
    calls = [[7, 5.0, 7.0, 0.0, [["b", 5.5, 6.0, 42, False]]]]
    rails = {"a": {"failures": 0}, "b": {"failures": 2}}
    counts = {"done": 2, "bytes": 8, "longest_s": 1.5, "rss_bytes": 9, "rails": rails}
    found.take({"event": "calls", "calls": calls, **counts})
    found.take({"event": "wrong", "elements": 5})
    assert found.calls == [Call(5.0, 7.0, (Slice("b", 5.5, 6.0, 42),), (3, 7))]
    assert (found.done, found.wrong, found.failures("b"), found.progress) == (2, 5, 2, 7.0)
    found.take({"event": "stuck"})
    assert found.stuck
    found.take({"event": "error", "at": 8.0, "kind": "PeerLost", "lost": 1, "text": "gone"})
    assert not found.stuck
    assert found.first_error(7.5) == RankError(8.0, "PeerLost", 1, "gone")


def test_every_kind_of_fault_can_hit_every_kind_of_rail() -> None:
    rng = random.Random(0)
    for plane in planes(2, ["ina", "tcp", "rdma"]).planes:
        drawn = {kind.name: kind.draw(plane, rng) for kind in kinds.OF_RAILS}
        assert all(fault.inject or fault.process for fault in drawn.values())
        assert drawn["flapping"].flap_s == 0.3
    for plane in planes(2, ["rdma", "netreduce"]).planes:
        assert kinds.QUEUE_PAIR_ENDED.draw(plane, rng).inject
    assert [
        rail
        for kind, rail in run.check(_options(topology=planes(2, ["rdma", "tcp"])))
        if kind is kinds.QUEUE_PAIR_ENDED
    ] == ["rdma"]


def _options(**given: object) -> FailoverOptions:
    return FailoverOptions(**{"topology": planes(2, ["ina", "tcp"]), "lab": None, **given})  # type: ignore[arg-type]


def test_the_same_seed_draws_the_same_faults() -> None:
    (plane,) = planes(8, ["tcp"]).planes
    ((kind, _),) = kinds.chosen(["loss one way"], [plane])
    first, again, other = (kind.draw(plane, random.Random(number)) for number in (1, 1, 2))
    assert first == again
    assert first != other


def test_faults_of_a_rail_that_is_asked_for_are_tried_there_and_others_nowhere() -> None:
    asked = run.check(_options(faults=["rank killed", "rate cut"], rails=["tcp"]))
    assert [(kind.name, rail) for kind, rail in asked] == [("rate cut", "tcp"), ("rank killed", "-")]


NO_TREE = "fits none of the rails: expected an in-network rail"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"faults": ["rain"]}, "fault 'rain': expected one of host link down, switch"),
        ({"rails": ["rdma"]}, "rail 'rdma': expected one of ina, tcp"),
        ({"topology": planes(2, ["tcp"])}, "expected a second rail"),
        ({"topology": planes(1, ["tcp", "tcp"])}, "at least 2"),
        ({"topology": planes(2, ["tcp", "tcp"]), "faults": ["leaf killed"]}, f"'leaf killed' {NO_TREE}"),
        ({"faults": ["uplink cut"]}, f"'uplink cut' {NO_TREE} and two spines"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        run.check(_options(**given))


def test_faults_of_trees_hit_trees_and_are_tried_where_there_are_trunks() -> None:
    rng = random.Random(0)
    tree = named("leaf-spine:racks=2,hosts=2,spines=2", rails=("ina",), rates=(0,))
    found = [kind for kind, _ in run.check(_options(topology=tree))]
    assert found == [kind for kind in kinds.KINDS.values() if kind is not kinds.QUEUE_PAIR_ENDED]
    places = {kind.name: kind.draw(tree.planes[0], rng).where for kind in found if kind.words}
    leaves, spines = ({switch.name for switch in level} for level in tree.planes[0].levels())
    assert places["leaf killed"] in leaves
    assert places["spine killed"] in spines
    assert set(places["uplink cut"].split(" - ")) <= leaves | spines
    flat = run.check(_options())
    assert {kind for kind, _ in flat} == {*kinds.OF_RAILS, kinds.RANK_COMPUTES, kinds.RANK_KILLED}
    asked = run.check(_options(faults=["leaf killed", "controller restarts"]))
    assert [(kind.name, rail) for kind, rail in asked] == [
        ("leaf killed", "ina"),
        ("controller restarts", "ina"),
    ]
