# SPDX-License-Identifier: Apache-2.0
"""The planes topology and topology files."""

from __future__ import annotations

import pytest
import yaml
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import Topology
from railweave.topologies.planes import plane_names, planes
from railweave.topologies.serialize import load


def test_planes_follow_the_address_plan() -> None:
    topology = planes(hosts=12, rails=("ina", "tcp", "tcp"), rates=(1, 2, 3))
    assert topology.hosts[-1] == "h12"
    assert [plane.name for plane in topology.planes] == ["ina", "tcp0", "tcp1"]
    assert [plane.rate_bps for plane in topology.planes] == [1, 2, 3]
    nic = topology.plane("tcp0").nics[11]
    assert (nic.interface, nic.address, nic.mac) == ("h12-tcp0", "10.2.0.12", "02:00:00:02:00:0c")
    assert (nic.switch, nic.port) == ("s-tcp0", 12)
    assert topology.plane("ina").switches[0].p4runtime == "10.255.0.200:9559"
    assert topology.plane("tcp0").switches[0].p4runtime == ""


def test_interface_names_fit_the_kernel() -> None:
    topology = planes(hosts=199, rails=["rdma"] * 40)
    for plane in topology.planes:
        for nic in plane.nics:
            assert len(nic.interface) <= 15
            assert len(f"{nic.switch}-eth{nic.port}") <= 15


def test_names_carry_numbers_only_where_kinds_repeat() -> None:
    assert plane_names(["tcp", "ina", "tcp"]) == ["tcp0", "ina", "tcp1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rails": ["ina", "ib"]}, "unknown rail 'ib'; rails are ina, tcp, rdma"),
        ({"rails": []}, "no rails"),
        ({"hosts": 0}, "0 hosts"),
        ({"hosts": 32}, "32 hosts given; from 1 to 31"),
        ({"rates": -1}, "-1 bit/s"),
        ({"rates": [1, 2]}, "2 rates given for 3 planes"),
    ],
)
def test_nonsense_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        planes(**arguments)  # type: ignore[arg-type]


def test_yaml_returns_an_equal_value() -> None:
    topology = planes(hosts=3, rails=("ina", "rdma"), rates=(10, 0))
    assert Topology.from_yaml(topology.to_yaml()) == topology


def damaged(change: str) -> str:
    data = yaml.safe_load(planes(hosts=2, rails=("ina",)).to_yaml())
    plane = data["planes"][0]
    match change:
        case "unknown key":
            plane["colour"] = "red"
        case "missing key":
            del plane["kind"]
        case "bad type":
            plane["rate_bps"] = "fast"
        case "bad kind":
            plane["kind"] = "ib"
        case "nowhere":
            plane["nics"][0]["switch"] = "s9"
        case "stranger":
            plane["nics"][0]["host"] = "h9"
        case "same port":
            plane["nics"][0]["port"] = 2
        case "outside":
            plane["nics"][0]["address"] = "192.0.2.1"
        case "not an address":
            plane["nics"][0]["address"] = "ten"
        case "not a list":
            plane["nics"] = {"h1": 1}
    return yaml.safe_dump(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("unknown key", r"topology\.planes\[0\]: unknown key 'colour'"),
        ("missing key", r"'kind' is missing"),
        ("bad type", r"rate_bps: expected int, found 'fast'"),
        ("bad kind", r"unknown kind 'ib'"),
        ("nowhere", r"switch 's9' is not among \['s-ina'\]"),
        ("stranger", r"host 'h9' is not among"),
        ("same port", r"switch port \('s-ina', 2\) occurs twice"),
        ("outside", r"192\.0\.2\.1 outside 10\.1\.0\.0/16"),
        ("not an address", r"ten"),
        ("not a list", r"nics: expected a list, found dict"),
    ],
)
def test_damaged_files_are_refused_with_the_place(change: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology.from_yaml(damaged(change))


def test_load_names_the_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TopologyError, match=r"absent\.yaml"):
        load(tmp_path / "absent.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(TopologyError, match=r"broken\.yaml: not YAML"):
        load(broken)
