# SPDX-License-Identifier: Apache-2.0
"""Cluster files: the contents of valid files, and the errors for invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest

from railweave.topologies.cluster import load
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import Nic, Switch

GOOD = """\
controller: 10.0.0.1:9600
planes:
  ina:
    network: 10.1.0.0/16
    rate: 100G
    switches:
      s1: {p4runtime: "10.0.0.9:9559", device_id: 3}
  fast: {kind: tcp, network: 10.2.0.0/24}
hosts:
  alpha:
    ina: {address: 10.1.0.1, mac: 52:54:00:12:34:56, port: 1}
    fast: enp3s0
  beta:
    ina: {address: 10.1.0.2, mac: "52:54:00:12:34:57", port: 2, interface: enp1s0}
    fast: 10.2.0.2
"""
TLS = "tls: {ca: ca.pem, certificate: own.pem, key: /own.key}\n"


def file(folder: Path, text: str) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return path


def test_a_good_file(tmp_path: Path) -> None:
    cluster = load(file(tmp_path, GOOD + TLS + "token: token\n"))
    topology = cluster.topology()
    assert (cluster.controller, topology.hosts) == ("10.0.0.1:9600", ("alpha", "beta"))
    ina, fast = topology.planes
    assert (ina.kind, ina.network, ina.rate_bps) == ("ina", "10.1.0.0/16", 10**11)
    assert ina.switches == (Switch("s1", "10.0.0.9:9559", 3),)
    assert ina.nics == (
        Nic("alpha", "", "10.1.0.1", "52:54:00:12:34:56", "s1", 1),
        Nic("beta", "enp1s0", "10.1.0.2", "52:54:00:12:34:57", "s1", 2),
    )
    assert (fast.kind, fast.rate_bps, fast.switches, fast.nics) == ("tcp", 0, (), ())
    assert cluster.hosts["alpha"]["fast"].interface == "enp3s0"
    assert cluster.hosts["beta"]["fast"].address == "10.2.0.2"
    assert cluster.tls is not None
    assert (cluster.tls.ca, cluster.tls.key) == (f"{tmp_path}/ca.pem", "/own.key")
    assert cluster.token == f"{tmp_path}/token"


@pytest.mark.parametrize(("given", "found"), [("switchml", "switchml"), ("../mine", "{}/../mine")])
def test_a_plane_of_an_algorithm(given: str, found: str, tmp_path: Path) -> None:
    """The path of a folder starts at the file's folder."""
    text = GOOD.replace("  ina:\n", f"  ina:\n    kind: algorithm\n    algorithm: {given}\n")
    plane = load(file(tmp_path, text)).topology().planes[0]
    assert (plane.kind, plane.algorithm) == ("algorithm", found.format(tmp_path))


def test_trees_of_switches(tmp_path: Path) -> None:
    several = GOOD.replace(
        '      s1: {p4runtime: "10.0.0.9:9559", device_id: 3}\n',
        '      s1: {p4runtime: "10.0.0.9:9559"}\n      s2: {p4runtime: "10.0.0.10:9559"}\n'
        "    trunks: [{lower: s1, lower_port: 30, upper: s2, upper_port: 1}]\n",
    )
    with pytest.raises(TopologyError, match=r"hosts\.alpha\.ina: no `switch`: expected one of s1, s2"):
        load(file(tmp_path, several))
    one = several.replace("56, port: 1}", "56, port: 1, switch: s1}")
    placed = load(file(tmp_path, one.replace("port: 2,", "port: 2, switch: s2,")))
    ina = placed.topology().plane("ina")
    assert [level[0].name for level in ina.levels()] == ["s1"]
    assert (ina.trunks[0].upper, ina.nics[1].switch) == ("s2", "s2")


def test_links_have_the_planes_mtu_or_their_own(tmp_path: Path) -> None:
    jumbo = GOOD.replace("rate: 100G", "mtu: 9000").replace("port: 2,", "port: 2, mtu: 1500,")
    ina, fast = load(file(tmp_path, jumbo)).topology().planes
    assert (ina.mtu, ina.narrowest(), fast.mtu) == (9000, ("beta to s1", 1500), 1500)


TOFINO = (
    GOOD.replace("device_id: 3}", "device_id: 3, tofino: built, ports: {1/0: 132, 2/0: 128}}")
    .replace("port: 1}", "port: 1/0}")
    .replace("port: 2,", "port: 2/0,")
)


def test_a_tofinos_ports_go_by_the_front_panels_names(tmp_path: Path) -> None:
    ina = load(file(tmp_path, TOFINO)).topology().plane("ina")
    ports = {"1/0": 132, "2/0": 128}
    assert ina.switches == (Switch("s1", "10.0.0.9:9559", 3, f"{tmp_path}/built", ports),)
    assert [nic.port for nic in ina.nics] == [132, 128]
    zero = load(file(tmp_path, TOFINO.replace("132", "0").replace("128", "1"))).topology().plane("ina")
    assert [nic.port for nic in zero.nics] == [0, 1]


def test_trunks_of_a_tofino_as_well(tmp_path: Path) -> None:
    trunks = "    trunks: [{lower: s2, lower_port: 30, upper: s1, upper_port: 3/0}]\n"
    two = TOFINO.replace("128}}\n", '128, 3/0: 140}}\n      s2: {p4runtime: "10.0.0.10:9559"}\n' + trunks)
    two = two.replace("port: 1/0", "port: 1/0, switch: s1").replace("port: 2/0", "port: 2/0, switch: s1")
    (trunk,) = load(file(tmp_path, two)).topology().plane("ina").trunks
    assert (trunk.lower_port, trunk.upper_port) == (30, 140)
    with pytest.raises(
        TopologyError,
        match=r"planes\.ina\.trunks\[0\]\.lower_port: '1/0': expected the number of the switch's",
    ):
        load(file(tmp_path, two.replace("lower_port: 30", "lower_port: 1/0")))


OF_TOFINO = [
    ("port: 1/0", "port: 9/0", r"hosts\.alpha\.ina\.port: '9/0': expected the number of the switch's"),
    ("port: 1/0", "port: -1", r"hosts\.alpha\.ina\.port: -1: expected the number of the switch's"),
    (
        "1/0: 132",
        "1/0: 2",
        "plane 'ina': switch 's1': ports 2, 128: expected ports of one pipe p, from 128 p",
    ),
    (
        "device_id: 3",
        "device_id: 0",
        "plane 'ina': switch 's1': device_id 0: expected 1 or more, as Stratum numbers",
    ),
    (
        "rate: 100G",
        "kind: netreduce",
        "switch 's1': a Tofino on a plane of kind netreduce: expected a plane of kind ina",
    ),
    (
        "1/0: 132",
        "1/0: one",
        r"cluster\.planes\.ina\.switches\.s1\.ports\.1/0: 'one': expected a whole number",
    ),
]
OF_ANY = [
    ("controller: 10.0.0.1:9600", "controller: 10.0.0.1", r"controller: '10\.0\.0\.1': expected"),
    ("controller: 10.0.0.1:9600\n", "", "cluster: no key 'controller': expected this key"),
    ("controller:", "contoller:", "cluster: unknown key 'contoller': expected one of controller, planes"),
    ("rate: 100G", "rate: fast", r"planes\.ina\.rate: 'fast': expected bit/s as 100G, 400M or a number"),
    ("rate: 100G", "rate: -5", r"planes\.ina\.rate: '-5': expected bit/s as 100G, 400M or a number"),
    ("rate: 100G", "mtu: 9k", r"cluster\.planes\.ina\.mtu: '9k': expected a whole number"),
    ("kind: tcp, ", "", r"planes\.fast: kind 'fast': expected one of ina, tcp, rdma"),
    ("10.1.0.0/16", "10.1.0.1/16", r"planes\.ina\.network: 10\.1\.0\.1/16 has host bits set"),
    ('p4runtime: "10.0.0.9:9559", ', "", r"planes\.ina\.switches: no P4 switch: expected one at least"),
    ("10.0.0.9:9559", "10.0.0.9", r"planes\.ina\.switches\.s1\.p4runtime: '10\.0\.0\.9': expected"),
    ("port: 1}", "prot: 1}", r"cluster\.hosts\.alpha\.ina: unknown key 'prot': expected one of"),
    ("port: 1}", "port: one}", r"hosts\.alpha\.ina\.port: 'one': expected the number of the switch's"),
    (", port: 1}", "}", r"hosts\.alpha\.ina: no `port`: expected one for each NIC of a plane"),
    ("mac: 52:54:00:12:34:56, ", "", r"hosts\.alpha\.ina: no `mac`: expected one for each NIC of a"),
    ("52:54:00:12:34:56", "52:54", r"hosts\.alpha\.ina\.mac: '52:54': expected the form"),
    ("port: 2", "port: 1", r"plane 'ina': switch port \('s1', 1\) occurs twice"),
    ("10.1.0.2", "10.1.0.1", "plane 'ina': address '10.1.0.1' occurs twice"),
    ("10.1.0.2", "10.9.0.2", r"hosts\.beta\.ina\.address: 10\.9\.0\.2: expected an address of the"),
    ("10.1.0.2", "10.1.0.x", r"hosts\.beta\.ina\.address: '10\.1\.0\.x': expected an IPv4 address such"),
    ("fast: enp3s0", "fast: {}", r"hosts\.alpha\.fast: neither `interface` nor `address`"),
    ("fast: enp3s0", "slow: enp3s0", r"hosts\.alpha: a NIC on plane 'slow': expected one of ina, fast"),
    ("fast: enp3s0", "fast: [enp3s0]", r"cluster\.hosts\.alpha\.fast: a list: expected a mapping with"),
    ("  beta:", "  alpha:", "line 13: 'alpha' is there twice"),
    ("hosts:\n", "token: x\nhosts:\n", "token: is given without tls, and would travel in clear"),
    ("hosts:\n", "switch_tls: {ca: a, certificate: b, key: c}\nhosts:\n", "switch_tls: is given without"),
    ("hosts:\n", "tls: {ca: a, key: b}\nhosts:\n", r"cluster\.tls: no key 'certificate': expected this"),
    ("controller:", "[", "not YAML"),
    (GOOD, "", "expected a mapping"),
    (GOOD, "controller: 1.2.3.4:5\nplanes: {}\nhosts: {}", "planes: none are given: expected one at least"),
    (
        GOOD,
        "controller: 1.2.3.4:5\nplanes: {tcp: {network: 10.0.0.0/8}}\nhosts: []",
        r"cluster\.hosts: a list: expected a mapping",
    ),
]


@pytest.mark.parametrize(
    ("good", "old", "new", "message"),
    [*((TOFINO, *row) for row in OF_TOFINO), *((GOOD, *row) for row in OF_ANY)],
)
def test_bad_files_are_refused_with_file_and_place(
    tmp_path: Path, good: str, old: str, new: str, message: str
) -> None:
    assert old in good
    with pytest.raises(TopologyError, match=rf"cluster\.yaml: .*{message}"):
        load(file(tmp_path, good.replace(old, new, 1)))
