# SPDX-License-Identifier: Apache-2.0
"""The controller refuses every request of a client that cannot be true."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave.controller import requests, resuming
from railweave.controller.errors import InvalidRequest
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb

TOPOLOGY = planes(4, ("ina", "tcp"))
RAIL = {
    **dict.fromkeys(("name", "kind", "plane"), "ina"),
    **{"address": "10.1.0.1", "mac": "02:00:00:01:00:01", "port": 4000},
}
REQUEST = {"job": "train", "rank": 0, "size": 4, "deadline_s": 10.0}


def request(rail: dict[str, Any] | None = None, **changes: Any) -> pb.JoinGroupRequest:
    values = {**REQUEST, "rails": [pb.RailOffer(**{**RAIL, **(rail or {})})], **changes}
    return pb.JoinGroupRequest(**values)


def test_what_is_right_passes() -> None:
    checked = requests.join_request(request(), TOPOLOGY)
    assert (checked.job, checked.rank, checked.size, checked.rails[0].address) == ("train", 0, 4, "10.1.0.1")
    elsewhere = {"kind": "tcp", "address": "10.1.9.9", "mac": ""}  # an ordinary rail may use any plane
    assert requests.join_request(request(elsewhere), TOPOLOGY).rails[0].kind == "tcp"
    requests.join_request(request({"kind": "netreduce", "sum_queue_pairs": [1, 2, 3]}), TOPOLOGY)
    requests.agree(joined(0), joined(1))


OTHER_MAC = "02:00:00:01:00:02"
SUMS = "queue pairs for sums: expected 3 of a netreduce rail"


@pytest.mark.parametrize(
    ("rail", "changes", "message"),
    [
        ({}, {"job": ""}, "job name ''"),
        ({}, {"job": "x" * 129}, "job name"),
        ({}, {"job": "a\nb"}, "expected 1 to 128 letters"),
        ({}, {"size": 0}, "world size 0: expected 1 to 1024"),
        ({}, {"size": 4_000_000_000}, "world size 4000000000"),
        ({}, {"rank": 4}, "rank 4: expected 0 to 3"),
        ({}, {"deadline_s": 0.0}, "deadline_s is 0"),
        ({}, {"deadline_s": math.nan}, "deadline_s is nan"),
        ({}, {"deadline_s": math.inf}, "deadline_s is inf"),
        ({}, {"rails": []}, "0 rails: expected 1 to 16"),
        ({}, {"rails": [pb.RailOffer(**RAIL)] * 2}, "rail name 'ina' is used twice"),
        ({}, {"rails": [pb.RailOffer(**{**RAIL, "name": f"r{i}"}) for i in range(17)]}, "17 rails"),
        ({"name": ""}, {}, "rail name ''"),
        ({"name": "a b"}, {}, "rail name 'a b'"),
        ({"kind": "smoke"}, {}, "rail 'ina': kind 'smoke': expected one of ina, tcp, rdma"),
        ({"plane": "moon"}, {}, "rail 'ina': plane 'moon': expected one of ina, tcp"),
        ({"address": "10.2.0.1"}, {}, r"rail 'ina': address 10\.2\.0\.1: expected an address of plane 'ina'"),
        ({"address": "nonsense"}, {}, "rail 'ina': 'nonsense': expected an IPv4 address"),
        ({"address": ""}, {}, "rail 'ina': '': expected an IPv4 address"),
        (
            {"address": "10.1.7.7"},
            {},
            r"rail 'ina': address 10\.1\.7\.7: expected one of a NIC of plane 'ina'",
        ),
        ({"mac": ""}, {}, "rail 'ina': MAC missing: expected 02:00:00:01:00:01, which"),
        ({"mac": OTHER_MAC}, {}, f"rail 'ina': MAC {OTHER_MAC}: expected 02:00:00:01:00:01, which"),
        ({"mac": "02-00"}, {}, "rail 'ina': MAC '02-00': expected the form 02:00:00:01:00:0a"),
        ({"port": 0}, {}, "port 0: expected 1 to 65535"),
        ({"port": 65536}, {}, "port 65536"),
        ({"control_port": 65536}, {}, "control port 65536: expected 1 to 65535, or 0 for no recovery"),
        ({"queue_pairs": [1, 2]}, {}, "rail 'ina': 2 queue pairs: expected none or 4, each up to 16777215"),
        ({"queue_pairs": [1, 2, 3, 2**24]}, {}, "each up to 16777215"),
        *(
            ({"kind": "netreduce", "sum_queue_pairs": numbers}, {}, SUMS)
            for numbers in ([], [1], [1, 2, 3, 4], [1, 2, 2**24])
        ),
        ({"kind": "rdma", "sum_queue_pairs": [1, 2, 3]}, {}, SUMS),
    ],
)
def test_bad_requests_are_named(rail: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        requests.join_request(request(rail, **changes), TOPOLOGY)


def joined(rank: int, **changes: Any) -> requests.JoinRequest:
    there = {"address": f"10.1.0.{rank + 1}", "mac": f"02:00:00:01:00:0{rank + 1}"}
    rail = {**there, **changes.pop("rail", {})}
    return requests.join_request(request(rail, rank=rank, **changes), TOPOLOGY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 3}, "job 'train': world size differs: rank 0 has 4, rank 1 has 3"),
        (
            {"rail": {"name": "other"}},
            "rails differs: rank 0 has ina=ina@ina, rank 1 has other=ina@ina",
        ),
        ({"rail": {"kind": "tcp"}}, "rank 0 has ina=ina@ina, rank 1 has ina=tcp@ina"),
        (
            {"rail": {"address": "10.1.0.1", "mac": "02:00:00:01:00:01"}},
            r"the same address of rail 'ina': 10\.1\.0\.1, port 4000: expected different addresses or ports",
        ),
    ],
)
def test_disagreement_names_both_sides(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        requests.agree(joined(0), joined(1, **changes))


@given(st.binary(max_size=200))
def test_random_bytes_are_checked_or_refused(data: bytes) -> None:
    for kind, check in (
        (pb.JoinGroupRequest, requests.join_request),
        (pb.Resume, resuming.read),
    ):
        message = kind()
        try:
            message.ParseFromString(data)
        except Exception:  # noqa: S112  protobuf has refused it; gRPC would
            continue
        with pytest.raises(InvalidRequest):
            check(message, TOPOLOGY)


def test_claims_must_fit_the_offers() -> None:
    resume = {"job": "train", "rank": 0, "size": 4, "rails": [pb.RailOffer(**RAIL)]}
    ina = pb.InaGroup(rail="ina", group=3, virtual_address="10.1.255.1", slots=64)
    second = pb.InaGroup(rail="ina", tree=1, group=7, virtual_address="10.1.255.2", slots=64)
    _, claims, _ = resuming.read(pb.Resume(**resume, ina=[second, ina], paused=[7]), TOPOLOGY)
    assert claims == (
        resuming.Claim("ina", 0, 64, 3, 0x0A01FF01, paused=False),
        resuming.Claim("ina", 1, 64, 7, 0x0A01FF02, paused=True),
    )
    for bad, message in (
        ([pb.InaGroup(rail="tcp", group=3)], "a tree of rail 'tcp': expected an ina rail that this rank"),
        ([pb.InaGroup(rail="ina", group=3, slots=64, virtual_address="x")], "'x': expected an IPv4 address"),
        ([pb.InaGroup(rail="ina", group=3, slots=8)], "group 3 of 8 slots: expected 1 to 2046"),
        ([pb.InaGroup(rail="ina", group=0, slots=64)], "group 0 of 64 slots"),
        ([ina, ina], "claimed twice"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            resuming.read(pb.Resume(**resume, ina=bad), TOPOLOGY)
