# SPDX-License-Identifier: Apache-2.0
"""Fault scripts on a command line."""

from __future__ import annotations

import re

import pytest

from railweave.commands.run import run
from railweave.experiments.errors import OptionError
from railweave.experiments.fault_script import FORMS, parse
from railweave.topologies.clos import leaf_spine
from railweave.topologies.lab import faults
from railweave.topologies.planes import planes

TOPOLOGY = planes(2, ["ina", "tcp"])
INA, TCP = TOPOLOGY.planes


def spans(text: str) -> list[tuple[str, float, float | None]]:
    return [(entry.text, entry.begin_s, entry.end_s) for entry in parse(text, TOPOLOGY)]


def test_the_commands_help_names_every_fault() -> None:
    assert run.__doc__ is not None
    text = " ".join(run.__doc__.split())
    assert all(name in text for name in FORMS)


def test_a_repair_ends_all_faults_before_it() -> None:
    script = "2s: host link down h1 ina; 2500ms: flapping h2 tcp; 4s: repair; 5s: switch frozen s-ina"
    assert spans(script) == [
        ("host link down h1 ina", 2.0, 4.0),
        ("flapping h2 tcp", 2.5, 4.0),
        ("switch frozen s-ina", 5.0, None),
    ]
    assert spans("") == []


def test_a_repair_with_words_ends_that_fault_alone() -> None:
    script = "1s: loss both ways h1 tcp; 1s: switch killed s-tcp; 2s: repair switch killed s-tcp"
    assert [end for _, _, end in spans(script)] == [None, 2.0]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("host link down h2 tcp", faults.host_down(TCP, "h2")),
        ("switch port down h1 ina", faults.port_down(INA, "h1")),
        ("flapping h1 tcp", faults.flapping(TCP, "h1")),
        ("loss both ways h1 tcp", faults.lossy(TCP, "h1")),
        ("loss to the switch h1 tcp", faults.lossy(TCP, "h1", to_host=False)),
        ("loss to the host h1 tcp", faults.lossy(TCP, "h1", to_switch=False)),
        ("switch killed s-tcp", faults.switch_killed(TCP)),
        ("switch frozen s-ina", faults.switch_frozen(INA)),
        ("rate 20M tcp", faults.rate_changed(TCP, 20_000_000)),
        ("rate 20M tcp h2", faults.rate_changed(TCP, 20_000_000, "h2")),
    ],
)
def test_every_fault_is_written_by_its_name_and_place(words: str, fault: faults.Fault) -> None:
    (entry,) = parse(f"0s: {words}", TOPOLOGY)
    assert entry.fault == fault


def test_queue_pairs_end_where_there_are_any() -> None:
    topology = planes(2, ["netreduce", "tcp"])
    (ended,) = parse("1s: queue pair ended h2 netreduce", topology)
    assert ended.fault == faults.queue_pair_ended(topology.planes[0], "h2")
    with pytest.raises(OptionError, match="has no queue pairs"):
        parse("1s: queue pair ended h2 tcp", topology)


def test_links_between_switches_and_the_controller_fail_too() -> None:
    topology = leaf_spine(2, 1, 1, rails=["ina"])
    cut, killed = parse("1s: link cut leaf1 spine1; 1s: controller killed", topology)
    assert cut.fault.inject == faults.link_steps(topology, "leaf1", "spine1", "down")
    assert cut.fault.repair == faults.link_steps(topology, "leaf1", "spine1", "up")
    assert killed.fault.process is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("host link down h1 ina", "expected a time and a fault"),
        ("2: host link down h1 ina", "expected a time and a fault"),
        ("2s: earthquake h1", f"expected one of: {next(iter(FORMS))}"),
        ("2s: host link down h1", "expected host link down HOST PLANE"),
        ("2s: host link down h9 ina", "host 'h9' is not on plane 'ina'"),
        ("2s: host link down h1 rdma", "plane 'rdma' of topology"),
        ("2s: switch killed s-rdma", "switch 's-rdma': expected one of s-ina, s-tcp"),
        ("2s: link cut h1 h2", "h1 and h2 have no link"),
        ("2s: rate fast tcp", "'fast'"),
        ("2s: repair", "repairs nothing: expected an earlier fault"),
        ("2s: flapping h1 ina; 2s: repair", "repairs nothing: expected an earlier fault"),
        ("1s: flapping h1 ina; 2s: repair; 3s: repair", "repairs nothing: expected an earlier fault"),
        ("1s: flapping h1 ina; 2s: repair flapping h2 ina", "repairs nothing: expected an earlier fault"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        parse(text, TOPOLOGY)
