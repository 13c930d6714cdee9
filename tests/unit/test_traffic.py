# SPDX-License-Identifier: Apache-2.0
"""Traffic management where BMv2 gives no example: bounds against programs without end, truncated clones."""

from __future__ import annotations

import json
import struct

import pytest
from vectors.case import case

from railweave.switch.errors import UnsupportedConstruct
from railweave.switch.pipeline import Pipeline, Replica

DO = 0x8000


@pytest.fixture
def paths() -> Pipeline:
    return Pipeline.load(case("paths").json.read_bytes())


def packet(**way: int) -> bytes:
    names = ("clone_ingress", "clone_egress", "resubmit", "recirculate")
    first = struct.pack(">HHBB", *(way.get(name, 0) for name in names))
    return first + struct.pack(">HHHBB", 0, 0, way.get("group", 0), 1, 0) + bytes(25) + b"payload"


def endless(op: str) -> Pipeline:
    """The program with every condition in front of resubmit, recirculate or clone gone."""
    root = json.loads(case("paths").json.read_bytes())
    for pipeline in root["pipelines"]:
        for conditional in pipeline["conditionals"]:
            if op in json.dumps(conditional.get("source_info", {})):
                conditional["false_next"] = conditional["true_next"]
    return Pipeline.load(json.dumps(root).encode())


def test_clones_are_cut_to_the_length_of_their_session(paths: Pipeline) -> None:
    paths.replication.set_session(1, [Replica(3)], packet_length=20)
    for way in ("clone_ingress", "clone_egress"):
        out = dict(paths.inject(2, packet(**{way: DO | 1})))
        assert (len(out[1]), len(out[3])) == (len(packet()), 20)


def test_what_a_packet_asks_for_ends(paths: Pipeline) -> None:
    for op in ("m.rounds[3:0] <= h.c.resubmit[3:0]", "h.c.recirculate[3:0] != 0"):
        pipeline = endless(op)
        pipeline.inject(2, packet(resubmit=0x31, recirculate=0x31))
        assert pipeline.native.statistics()["aborted"] == 1
        assert len(pipeline.inject(2, b"short")) == 0  # and the next is a packet as any other


def test_copies_that_copy_themselves_end() -> None:
    pipeline = endless("h.c.clone_egress[15:15] == 1 && s.instance_type != 2")
    for session in (1, 2):
        pipeline.replication.set_session(session, [Replica(port) for port in range(1, 9)])
    sent = pipeline.inject(2, packet(clone_egress=DO | 1))
    statistics = pipeline.native.statistics()
    assert 64 < len(sent) < 4096
    assert statistics["aborted"] > 0


def test_a_session_or_group_that_is_gone_makes_no_copies(paths: Pipeline) -> None:
    paths.replication.set_session(1, [Replica(3)])
    paths.replication.set_group(5, [Replica(4)])
    assert [port for port, _ in paths.inject(2, packet(clone_ingress=DO | 1, group=5))] == [3, 4]
    paths.replication.set_session(1, [])
    paths.replication.set_group(5, [])
    assert paths.inject(2, packet(clone_ingress=DO | 1, group=5)) == []


def test_headers_fields_in_a_field_list_are_kept() -> None:
    root = json.loads(case("paths").json.read_bytes())
    [kept] = [item for item in root["field_lists"] if item["id"] == 1]
    kept["elements"].append({"type": "field", "value": ["x", "value"]})
    kept["elements"].append({"type": "hexstr", "value": "0x12"})
    pipeline = Pipeline.load(json.dumps(root).encode())
    assert len(pipeline.inject(2, packet(recirculate=0x11))) == 1
    kept["elements"].append({"type": "magic", "value": 1})
    with pytest.raises(UnsupportedConstruct, match="'magic' in a field list"):
        Pipeline.load(json.dumps(root).encode())
