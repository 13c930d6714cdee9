# SPDX-License-Identifier: Apache-2.0
"""Scenarios: values with a key, which are read from JSON or refused with a message."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from railweave.experiments.contenders import Contender
from railweave.experiments.errors import OptionError
from railweave.experiments.scenario import EACH, LAST, Scenario, Workload

BOTH = Contender("ina+tcp", "railweave")
TCP = Contender("tcp", "railweave", ("tcp",), {"shares": {"tcp": 1.0}})
SCENARIO = Scenario(
    "small", (BOTH, TCP), Workload((4096, 1 << 20)), loss={"ina": 0.01}, faults="2s: host link down h1 ina"
)


def test_a_file_has_the_same_scenario(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SCENARIO.as_json()))
    assert Scenario.load(tmp_path / "s.json") == SCENARIO
    assert "hosts" not in json.loads((tmp_path / "s.json").read_text())  # `hosts` has its default value


@pytest.mark.parametrize(
    "scenario",
    [
        SCENARIO,
        replace(SCENARIO, name='a "b" \\ ü', loss={}, noise=0.25, control=True),
        replace(SCENARIO, contenders=(replace(TCP, options={"shares": {"a-b.c": 1 / 3}, "slots": 8}),)),
    ],
)
def test_a_scenario_survives_toml(tmp_path: Path, scenario: Scenario) -> None:
    file = tmp_path / "s.toml"
    file.write_text(scenario.as_toml(), encoding="utf-8")
    assert Scenario.load(file) == scenario
    assert Scenario.load(file).key == scenario.key


def test_disturbed_calls_are_all_compared() -> None:
    calm = replace(SCENARIO, loss={}, faults="")
    assert calm.verify == LAST
    for disturbed in (
        replace(calm, loss={"ina": 0.1}),
        replace(calm, impair="loss=0.1"),
        replace(calm, faults="1s: rate 1M tcp"),
    ):
        assert disturbed.verify == EACH
        assert replace(disturbed, workload=replace(disturbed.workload, verify=LAST)).verify == LAST


def test_the_key_is_of_what_is_measured() -> None:
    assert replace(SCENARIO, repetitions=9).key == SCENARIO.key
    for changed in (
        replace(SCENARIO, workload=replace(SCENARIO.workload, in_place=True)),
        replace(SCENARIO, seed=2),
        replace(SCENARIO, rates=(50_000_000,)),
        replace(SCENARIO, noise=0.1),
    ):
        assert changed.key != SCENARIO.key
    assert replace(SCENARIO, hosts=4).key == SCENARIO.key
    assert Scenario.from_json(json.loads(json.dumps(SCENARIO.as_json()))).key == SCENARIO.key


def test_a_contender_uses_its_planes() -> None:
    assert SCENARIO.planes_of(BOTH) == ("ina", "tcp")
    assert SCENARIO.planes_of(TCP) == ("tcp",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contenders": []}, "contenders is []: expected at least one"),
        (
            {"contenders": [{"name": "a", "kind": "nccl"}]},
            "contender 'nccl': expected one of railweave,",
        ),
        ({"contenders": [{"name": "a", "kind": "railweave"}] * 2}, "expected different names"),
        (
            {"contenders": [{"name": "a", "kind": "railweave", "rails": ["rdma"]}]},
            "'rdma': expected one of ina, tcp",
        ),
        ({"workload": {}}, "expected sizes or messages"),
        ({"workload": {"sizes": [6]}}, "size is 6: expected a multiple of 4 bytes"),
        ({"workload": {"sizes": [4], "op": "prod"}}, "op 'prod': expected one of sum"),
        ({"workload": {"sizes": [4], "root": 4}}, "root is 4: expected a rank, 0 to 3"),
        ({"workload": {"sizes": [4], "verify": "some"}}, "verify 'some': expected one of last, each;"),
        ({"workload": {"sizes": [4], "speed": 1}}, "scenario.workload: unknown key 'speed'"),
        ({"workload": {"sizes": "4"}}, "scenario.workload.sizes: '4': expected a list"),
        ({"workload": {"sizes": [16, 12], "collective": "all_gather"}}, "size is 12: expected at least 16"),
        ({"hosts": 1}, "number of hosts is 1: expected at least 2"),
        ({"hosts": "4"}, "scenario.hosts: '4': expected a whole number"),
        ({"rails": ["ipx"]}, "ipx"),
        ({"noise": 1}, "noise is 1.0: expected 0 to 0.9"),
        ({"faults": "soon: host link down h1 ina"}, "expected a time and a fault"),
        ({"loss": {"ina": "much"}}, "scenario.loss.ina: 'much': expected a number"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SCENARIO.as_json() | change))
    with pytest.raises(OptionError) as refused:
        Scenario.load(path)
    assert str(path) in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize("kind", ["json", "toml"])
def test_a_file_of_another_form_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"s.{kind}"
    path.write_text("{")
    with pytest.raises(OptionError, match=rf"s\.{kind}: .* a scenario in {kind.upper()}"):
        Scenario.load(path)
