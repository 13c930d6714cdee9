# SPDX-License-Identifier: Apache-2.0
"""Topologies as values, from names and from files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
import yaml

from railweave.topologies.clos import fat_tree, leaf_spine, mixed_racks
from railweave.topologies.errors import TopologyError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import interface_of_port
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Switch, Topology, Trunk
from railweave.topologies.named import named
from railweave.topologies.planes import planes
from railweave.topologies.serialize import from_yaml, load, to_yaml, validate

ROOT = Path(__file__).parents[2]


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


def test_planes_of_algorithms_have_their_names_and_short_interfaces() -> None:
    folder = ROOT / "algorithms" / "sum"
    topology = planes(31, ["omnireduce", "tcp", f"{folder.parent}/../algorithms/sum", "switchml"])
    validate(topology)
    assert from_yaml(to_yaml(topology)) == topology
    names = [(plane.name, plane.kind, plane.algorithm) for plane in topology.planes]
    assert names == [
        ("omnireduce", "algorithm", "omnireduce"),
        ("tcp", "tcp", ""),
        ("sum", "algorithm", str(folder)),
        ("switchml", "algorithm", "switchml"),
    ]
    assert topology.plane("sum").switches == (Switch("s-alg2", "10.255.0.202:9559", 3),)
    for nic in (nic for plane in topology.planes for nic in plane.nics):
        assert len(nic.interface) <= 15 >= len(interface_of_port(nic.switch, nic.port))


def test_a_folder_has_the_name_of_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "algorithms" / "sum")
    assert [plane.name for plane in planes(2, ["./", "../omnireduce"]).planes] == ["sum", "omnireduce"]


def test_an_algorithm_may_have_levels_of_switches() -> None:
    plane = leaf_spine(2, 2, rails=["tcp", "sum"]).plane("sum")
    assert (plane.algorithm, len(plane.switches), plane.nics[0].interface) == ("sum", 4, "h1-alg1")


LONG = "characters: expected 15 at most"
LETTER = "expected an ASCII letter, then letters"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("s-tcp", "leaf-of-rack-1", f"would be called 'leaf-of-rack-1-eth1', 19 {LONG}"),
        ("h2-tcp", "h2-on-the-tcp-plane", f"would be called 'h2-on-the-tcp-plane', 19 {LONG}"),
        ("s-tcp", "a switch", f"switch': its interface would be called 'a switch-eth1': {LETTER}"),
        ("h2-tcp", "h2/tcp", f"host 'h2': its interface would be called 'h2/tcp': {LETTER}"),
        ("h2-tcp", "2tcp", f"host 'h2': its interface would be called '2tcp': {LETTER}"),
        ("h2-tcp", "mgmt", "host 'h2': .* 'mgmt', and another one"),
        ("h2-ina", "h2-tcp", "host 'h2': .* 'h2-tcp', and another one"),
        ("s-tcp", "h2", "'h2' is the name of 2 nodes"),
        ("s-tcp", "c0", "'c0' is the name of 2 nodes: expected different names, and neither c0"),
    ],
)
def test_names_that_linux_cannot_have_are_refused_before_anything_is_made(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = to_yaml(planes(2, ("ina", "tcp")))
    out = tmp_path / "out"
    with pytest.raises(TopologyError, match=message):
        Lab(from_yaml(text.replace(old, new)), LabOptions(out))
    assert not out.exists()


def test_many_ports_make_names_too_long_too() -> None:
    with pytest.raises(TopologyError, match="'s-rdma10-eth1000', 16 characters"):
        Lab(planes(1000, ["rdma"] * 11), LabOptions(Path("out")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rails": ["ina", "ib"]}, "rail 'ib': expected one of ina, tcp, rdma"),
        ({"rails": ["ib"]}, r"rail 'ib': .*, an algorithm \(atp, .*, thc\), or the path of its folder"),
        ({"rails": ["./ib"]}, r"rail './ib': .*ib/algorithm.toml"),
        ({"rails": ["atp"]}, "rail 'atp': a rail with atp, which has a parameter server: expected none"),
        ({"rails": ["algorithm"]}, "rail 'algorithm': expected one of ina"),
        ({"rails": []}, "no rails"),
        ({"hosts": 0}, "0 hosts"),
        ({"hosts": 32}, "32 hosts: expected 1 to 31, the fan-in of one"),
        ({"rates": -1}, "-1 bit/s"),
        ({"rates": [1, 2]}, "2 rates for 3 planes: expected one, or one per plane"),
    ],
)
def test_nonsense_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        planes(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("colour", "red", r"topology\.planes\[0\]: unknown key 'colour'"),
        ("kind", None, r"topology\.planes\[0\]: no key 'kind': expected this key"),
        ("rate_bps", "fast", r"topology\.planes\[0\]\.rate_bps: 'fast': expected a whole number"),
        ("kind", "ib", "plane 'ina': kind 'ib': expected one of ina, tcp, rdma"),
        (
            "kind",
            "algorithm",
            "plane 'ina': kind algorithm with algorithm '': expected an algorithm on planes",
        ),
        ("algorithm", "sum", "plane 'ina': kind ina with algorithm 'sum': expected an algorithm on planes"),
        ("nics", {"h1": 1}, r"topology\.planes\[0\]\.nics: a mapping: expected a list"),
        ("nic switch", "s9", "plane 'ina': switch 's9': expected one of s-ina"),
        ("nic host", "h9", "plane 'ina': host 'h9': expected one of h1, h2"),
        ("nic port", 2, r"switch port \('s-ina', 2\) occurs twice"),
        ("nic address", "192.0.2.1", r"plane 'ina': 192\.0\.2\.1: expected addresses of 10\.1\.0\.0/16"),
        ("nic address", "ten", r"ten"),
    ],
)
def test_damaged_files_are_refused_with_the_place(key: str, value: object, message: str) -> None:
    data = yaml.safe_load(to_yaml(planes(hosts=2, rails=("ina",))))
    plane = data["planes"][0]
    place = plane["nics"][0] if key.startswith("nic ") else plane
    place[key.removeprefix("nic ")] = value
    if value is None:
        del place[key]
    with pytest.raises(TopologyError, match=message):
        from_yaml(yaml.safe_dump(data))


def test_load_names_the_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TopologyError, match=r"absent\.yaml"):
        load(tmp_path / "absent.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(TopologyError, match=r"broken\.yaml: not YAML"):
        load(broken)


def test_a_planes_least_mtu_is_that_of_its_narrowest_link() -> None:
    topology = named("leaf-spine:racks=2,hosts=1,spines=1", rails=["ina", "tcp"], rates=[0], mtu=9000)
    ina, tcp = topology.planes
    assert (ina.least_mtu, tcp.least_mtu) == (9000, 9000)
    narrow = replace(ina, trunks=(ina.trunks[0], replace(ina.trunks[1], mtu=4000)))
    assert narrow.narrowest() == ("leaf2 to spine1", 4000)
    narrower = replace(narrow, nics=(replace(ina.nics[0], mtu=1500), ina.nics[1]))
    assert narrower.narrowest() == ("h1 to leaf1", 1500)
    changed = replace(topology, planes=(narrower, tcp))
    assert from_yaml(to_yaml(changed)) == changed
    for wrong in (60, 65536):
        message = rf"plane 'ina': link h1 to s-ina has an MTU of {wrong}: expected 68 to 65535 bytes"
        with pytest.raises(TopologyError, match=message):
            named("planes:hosts=1", rails=["ina"], rates=[0], mtu=wrong)


def test_a_leaf_spine_joins_every_leaf_to_every_spine() -> None:
    topology = leaf_spine(racks=3, hosts=2, spines=2, rails=("ina", "tcp"), rates=10, uplink_bps=20)
    ina, tcp = topology.planes
    assert len(topology.hosts) == 6
    assert [switch.name for switch in ina.switches] == ["leaf1", "leaf2", "leaf3", "spine1", "spine2"]
    assert {(t.lower, t.upper, ina.rate_of(t)) for t in ina.trunks} == {
        (f"leaf{leaf}", f"spine{spine}", 20) for leaf in (1, 2, 3) for spine in (1, 2)
    }
    assert [nic.switch for nic in ina.nics] == ["leaf1", "leaf1", "leaf2", "leaf2", "leaf3", "leaf3"]
    assert len({switch.p4runtime for switch in ina.switches}) == 5
    assert [switch.name for switch in tcp.switches] == ["s-tcp"]


@pytest.mark.parametrize("spine", ["plain", "ina"])
def test_of_mixed_racks_the_first_aggregate(spine: str) -> None:
    """In all else, mixed racks are a leaf-spine of one spine."""
    options = {"racks": 3, "hosts": 2, "rails": ("ina", "tcp"), "uplink_bps": 20}
    topology, like = mixed_racks(ina=1, spine=spine, **options), leaf_spine(spines=1, **options)
    ina = topology.planes[0]
    aggregates = {switch.name for switch in ina.switches if switch.p4runtime}
    assert aggregates == {"leaf1"} | ({"spine1"} if spine == "ina" else set())
    assert (ina.trunks, ina.nics) == (like.planes[0].trunks, like.planes[0].nics)
    assert from_yaml(to_yaml(topology)) == topology
    assert named(f"racks:racks=3,hosts=2,ina=1,spine={spine}", rails=["ina"], rates=[0]).planes[0].switches


@pytest.mark.parametrize("counts", [{"k": 4}, {"pods": 3, "edges": 2, "aggs": 2, "cores": 4}])
def test_a_fat_tree_has_three_levels_and_every_core_reaches_every_pod(counts: dict[str, int]) -> None:
    topology = fat_tree(**counts, rails=("ina",))
    (plane,) = topology.planes
    switches = nx.Graph((trunk.lower, trunk.upper) for trunk in plane.trunks)
    pods = counts.get("pods", counts.get("k", 0))
    for core in (name for name in switches if name.startswith("core")):
        assert nx.degree(switches, core) == pods
    edges = {nic.switch for nic in plane.nics}
    assert max(nx.shortest_path_length(switches, "core1", edge) for edge in edges) == 2
    assert from_yaml(to_yaml(topology)) == topology
    if "k" in counts:  # as in the paper, all ports of all switches are used
        ports = Counter(nic.switch for nic in plane.nics)
        ports.update(end for trunk in plane.trunks for end in (trunk.lower, trunk.upper))
        assert (len(plane.nics), len(ports), set(ports.values())) == (16, 20, {4})


def test_interface_names_of_several_planes_with_levels_fit_the_kernel() -> None:
    topology = fat_tree(8, rails=("ina", "ina", "rdma"))
    validate(topology)
    for plane in topology.planes:
        ends = [(nic.switch, nic.port) for nic in plane.nics]
        ends += [end for t in plane.trunks for end in ((t.lower, t.lower_port), (t.upper, t.upper_port))]
        assert all(len(interface_of_port(*end)) <= 15 for end in ends)
        assert all(len(nic.interface) <= 15 for nic in plane.nics)


@pytest.mark.parametrize(
    ("text", "hosts", "switches"),
    [
        ("planes", 3, 1),
        ("planes:hosts=2", 2, 1),
        ("leaf-spine:racks=2,hosts=1,spines=3", 2, 5),
        ("racks:hosts=1,ina=4", 4, 5),
    ],
)
def test_topologies_have_names(text: str, hosts: int, switches: int) -> None:
    topology = named(text, hosts=3, rails=["ina"], rates=[0])
    assert (len(topology.hosts), len(topology.planes[0].switches)) == (hosts, switches)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ring", "topology 'ring': expected planes, leaf-spine, racks"),
        ("racks:racks=2,ina=3", "3 ina racks: expected 0 to 2"),
        ("racks:spine=fast", "a spine of kind 'fast': expected plain or ina"),
        ("racks:leaves=3", "topology racks: 'leaves=3': expected NAME=NUMBER, with a name of"),
        ("leaf-spine:rack=2", "topology leaf-spine: 'rack=2': expected NAME=NUMBER, with a name of"),
        ("leaf-spine:racks=-1", "topology leaf-spine: 'racks=-1': expected NAME=NUMBER, with a name of"),
        ("leaf-spine:spines=0", "0 spines: expected at least 1"),
        ("leaf-spine:hosts=32", "32 hosts per rack: expected 31 at most, whose contributions"),
        ("fat-tree:k=3", "k=3: expected an even number"),
        ("fat-tree:aggs=2,cores=3", "3 cores for 2 aggregation switches per pod: expected a multiple"),
        ("fat-tree:k=18", "1458 hosts: expected 1024 at most, for which there"),
    ],
)
def test_names_of_no_topology_are_refused(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        named(text, rails=["ina"], rates=[0])


def test_two_trunks_between_the_same_switches_are_refused() -> None:
    (plane,) = leaf_spine(1, 1, 1, rails=("ina",)).planes
    twice = replace(plane, trunks=(*plane.trunks, Trunk("spine1", 9, "leaf1", 9)))
    with pytest.raises(TopologyError, match="trunk between \\('leaf1', 'spine1'\\) occurs twice"):
        validate(Topology("x", ("h1",), (twice,)))
