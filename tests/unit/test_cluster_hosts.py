# SPDX-License-Identifier: Apache-2.0
"""The parts of a cluster file that a rank uses: its host, its rails and the controller."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from railweave.commands import cluster_checks
from railweave.hosts.cluster import this_host
from railweave.hosts.errors import InvalidOption
from railweave.hosts.options import RailSpec, options_from, rails_of
from railweave.topologies.cluster import load

FILE = """\
controller: 10.0.0.1:9600
planes:
  tcp: {network: 127.0.0.0/8, rate: 10G}
  second: {kind: tcp, network: 10.2.0.0/16}
hosts:
  NAME: {tcp: 127.0.0.1, second: lo}
  other: {tcp: 127.0.0.2, second: 10.2.0.2}
"""
RANK = {"RANK": "1", "WORLD_SIZE": "2"}
TCP, SECOND = RailSpec("tcp", "tcp", "lo", 10**10), RailSpec("second", "tcp", "lo")


def file(folder: Path, name: str, old: str = "", new: str = "") -> str:
    path = folder / "cluster.yaml"
    path.write_text(FILE.replace("NAME", name).replace(old, new))
    return str(path)


@pytest.mark.parametrize("name", [socket.gethostname(), "of-another-name"])
def test_a_machine_is_known_by_its_name_or_its_addresses(tmp_path: Path, name: str) -> None:
    cluster = load(file(tmp_path, name))
    assert this_host(cluster) == name
    assert rails_of(cluster) == {"tcp": TCP, "second": SECOND}


def test_a_host_name_with_its_domain_is_known_by_its_first_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "other.example.org")
    assert this_host(load(file(tmp_path, "one"))) == "other"


def test_a_machine_that_is_none_of_the_hosts_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidOption, match=r"127\.0\.0\.1.* is none of the cluster's hosts: expected one of one, other"
    ):
        rails_of(load(file(tmp_path, "one", "127.0.0.1", "127.0.0.3")))


def test_an_address_that_the_machine_lacks_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, socket.gethostname(), "second: lo", "second: 10.2.0.1")
    with pytest.raises(
        InvalidOption, match=r"plane 'second': 10\.2\.0\.1 is not the first address of any interface"
    ):
        rails_of(load(path))


def test_doctor_refuses_the_host_that_init_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "other")
    text = {"old": "127.0.0.1", "new": "127.0.0.3"}
    cluster = load(file(tmp_path, "one", **text))
    cluster = replace(
        cluster, hosts={"one": cluster.hosts["one"], "other.example.org": cluster.hosts["other"]}
    )
    with pytest.raises(
        InvalidOption, match=r"none of the cluster's hosts: expected one of one, other\.example\.org"
    ):
        rails_of(cluster)
    finding = cluster_checks.check_host(replace(cluster, controller="192.0.2.1:9600"))
    assert (finding.name, finding.present, finding.needed) == ("host", False, True)
    assert "'other'" in finding.detail
    assert finding.remedy == "call one of them by this machine's name, or give the addresses of its NICs"
    here = cluster_checks.check_host(replace(cluster, controller="127.0.0.1:9600"))
    assert here.present
    assert "no rank can run here" in here.detail


def test_options_come_from_the_file_where_nothing_else_says_them(tmp_path: Path) -> None:
    environment = {**RANK, "RAILWEAVE_CLUSTER": file(tmp_path, "one")}
    options = options_from(environment=environment)
    assert (options.controller, options.rails) == ("10.0.0.1:9600", (TCP, SECOND))
    own = options_from(environment={**environment, "RAILWEAVE_RAILS": "second,x=tcp@lo/1G"})
    assert own.rails == (SECOND, RailSpec("x", "tcp", "lo", 10**9))
    assert options_from(environment={**environment, "RAILWEAVE_CONTROLLER": "a:1"}).controller == "a:1"
    argument = options_from(cluster=environment["RAILWEAVE_CLUSTER"], rails="tcp", environment=RANK)
    assert argument.rails == (TCP,)


@pytest.mark.parametrize("rails", ["second,foo", "foo", "tc"])
def test_a_rail_that_is_no_plane_of_the_file_is_told_the_planes(tmp_path: Path, rails: str) -> None:
    environment = {**RANK, "RAILWEAVE_CLUSTER": file(tmp_path, "one"), "RAILWEAVE_RAILS": rails}
    name = rails.rpartition(",")[2]
    with pytest.raises(
        InvalidOption,
        match=f"rail '{name}' is no plane of this host in the cluster file: expected tcp, second",
    ):
        options_from(environment=environment)


def test_a_bad_file_is_a_bad_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"none\.yaml"):
        options_from(cluster=f"{tmp_path}/none.yaml", environment=RANK)
