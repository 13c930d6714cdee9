# SPDX-License-Identifier: Apache-2.0
"""Simulated allreduces against closed forms: steps of each algorithm, and bytes on the slowest link."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from railweave.errors import Unavailable
from railweave.experiments import simulation
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import Experiment, figures
from railweave.experiments.figures.runs import racks_simulated as s1
from railweave.experiments.figures.runs import two_rails
from railweave.experiments.simulation import Call, Fabric, simulator

needs_ns3 = pytest.mark.skipif(find_spec("ns3") is None, reason="no ns-3: make simulate")

MIB = 1 << 20
SLOW = Fabric(4, 4, rate_bps=1e7, delay_s=0, message_s=0, mtu=1500, chunk_bytes=1024, burst_bytes=6056)
STEPS = replace(SLOW, rate_bps=1e10, message_s=0.1)
TCP, INA = 1500 / 1448, 1068 / 1024  # bytes of a full packet per byte of the tensor


def composed(fabric: Fabric, ina: int, size: int) -> Call:
    return Call("composed", fabric, size, ina=ina)


CALLS = {
    "ring": [Call("ring", SLOW, MIB)],
    "parts": [Call("ring", SLOW, MIB, parts=2)],
    "hierarchical": [Call("hierarchical", SLOW, MIB)],
    "tree": [Call("tree", SLOW, MIB)],
    "one rack": [Call("tree", replace(SLOW, racks=1), MIB)],
    "no bucket": [Call("tree", replace(SLOW, burst_bytes=0), MIB)],
    "again": [composed(SLOW, 2, MIB)],
    "two planes": [Call("ring", SLOW, MIB), Call("tree", SLOW, MIB)],
    **{f"composed {ina}": [composed(SLOW, ina, MIB)] for ina in (1, 2, 3, 4)},
    **{f"steps {ina}": [composed(STEPS, ina, 4096)] for ina in (1, 2, 3, 4)},
    "steps ring": [Call("ring", STEPS, 4096)],
    "steps hierarchical": [Call("hierarchical", STEPS, 4096)],
    "steps tree": [Call("tree", STEPS, 4096)],
}


@pytest.fixture(scope="module")
def seconds() -> dict[str, float]:
    """Simulate all calls in one process, because ns-3 takes seconds to start."""

    async def run() -> dict[str, float]:
        async with simulator() as simulate:
            return {name: (await simulate(*calls)).seconds for name, calls in CALLS.items()}

    return asyncio.run(run())


def transfer_s(part: float, headers: float) -> float:
    """Return the time in which a link carries this part of the tensor."""
    return 8 * MIB * part * headers / SLOW.rate_bps


@needs_ns3
@pytest.mark.parametrize(
    ("call", "steps"),
    [
        ("steps ring", 30),
        *((f"steps {ina}", steps) for ina, steps in ((1, 24), (2, 18), (3, 12), (4, 6))),
        ("steps hierarchical", 12),
        ("steps tree", 0),
    ],
)
def test_the_chain_has_as_many_steps(seconds: dict[str, float], call: str, steps: int) -> None:
    """A ring of L = r + (R-r)k members takes 2(L-1) steps, a hierarchical ring 2(k-1) + 2(R-1) steps."""
    assert seconds[call] == pytest.approx(steps * STEPS.message_s, abs=0.002)


@needs_ns3
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("ring", transfer_s(2 * 15 / 16, TCP)),
        ("parts", transfer_s(2 * 15 / 16, TCP)),
        ("hierarchical", transfer_s(4 * 3 / 4, TCP)),
        ("tree", transfer_s(1, INA)),
        ("one rack", transfer_s(1, INA)),
        ("no bucket", transfer_s(1, INA)),
        ("two planes", transfer_s(2 * 15 / 16, TCP)),
    ],
)
def test_the_slowest_link_is_full(seconds: dict[str, float], call: str, expected: float) -> None:
    assert 0.985 * expected < seconds[call] < 1.12 * expected  # a bucket's first burst is free


@needs_ns3
def test_every_rack_that_aggregates_saves_time(seconds: dict[str, float]) -> None:
    times = [seconds[f"composed {ina}"] for ina in (1, 2, 3, 4)]
    assert times == sorted(times, reverse=True)
    for ina, time in enumerate(times, start=1):
        around = ina + (4 - ina) * 4
        bound = transfer_s(2 * (around - 1) / around, TCP)
        assert bound < time < 1.2 * bound


@needs_ns3
def test_a_simulation_is_repeatable(seconds: dict[str, float]) -> None:
    assert seconds["again"] == seconds["composed 2"]


def test_the_model_of_s1_counts_members_and_links() -> None:
    assert [2 * (s1.members(SLOW, ina) - 1) for ina in range(5)] == [30, 24, 18, 12, 6]
    assert s1.model_s(replace(SLOW, mtu=0), 4, MIB) == pytest.approx(transfer_s(2 * 3 / 4, 1))
    # A message between racks crosses 4 links: it has 4 delays, and a packet's time on the last 3 links.
    lags = replace(SLOW, rate_bps=1e9, delay_s=1e-3, message_s=1e-2, mtu=1500)
    latency_s = 1e-2 + 4e-3 + 3 * 12e-6
    assert s1.model_s(lags, 4, MIB) == pytest.approx(6 * (2 * MIB / 1e9 / 4 + latency_s))  # four columns
    short = replace(lags, mtu=9000, chunk_bytes=1024)
    assert s1.model_s(short, 4, 4096) == pytest.approx(6 * (8 * 1024 / 1e9 * 4 + 1e-2 + 4e-3))  # one packet


def test_both_rails_of_n8_end_together() -> None:
    part = two_rails.share(0.02, 0.04, 3 * MIB)
    assert part == 2 * MIB
    assert 0.02 * part == pytest.approx(0.04 * (3 * MIB - part))


def test_without_ns3_figures_are_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simulation, "find_spec", lambda name: None)
    for figure in figures(["S1", "N8"]):
        for step in figure.plan(quick=True):
            assert isinstance(step, Experiment)
            (record,) = asyncio.run(step.records(tmp_path, print))
            assert (record.status, record.error) == (
                "skipped",
                "no ns-3: expected the package ns3; install it: make simulate",
            )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call("star", SLOW, 4), "algorithm 'star': expected one of ring, hierarchical, tree, composed"),
        (composed(SLOW, 0, 4), "0 racks that aggregate: expected 1 to 4"),
        (composed(SLOW, 5, 4), "5 racks that aggregate: expected 1 to 4"),
        (Call("ring", Fabric(65, 16), 4), "65 racks of 16 hosts: expected racks of 2 to 250, and up"),
        (Call("ring", Fabric(4, 1), 4), "4 racks of 1 hosts"),
        (Call("ring", replace(SLOW, chunk_bytes=1480), 4), "chunks of 1480 bytes: expected at most 1456"),
        (Call("ring", SLOW, 0), "size_bytes 0: expected at least 1"),
    ],
)
def test_what_cannot_be_simulated_is_named(call: Call, words: str) -> None:
    with pytest.raises(OptionError) as raised:
        call.check()
    assert words in str(raised.value)


def test_without_ns3_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "find_spec", lambda name: None)

    async def run() -> None:
        async with simulator():
            pass

    with pytest.raises(Unavailable, match="make simulate"):
        asyncio.run(run())
