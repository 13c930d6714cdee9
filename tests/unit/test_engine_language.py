# SPDX-License-Identifier: Apache-2.0
"""Language features that a control plane sees: value sets, messages, assertions, and the limits."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from vectors.case import case

from railweave.switch.errors import InvalidProgram, TableFull
from railweave.switch.lowering.messages import fill, places
from railweave.switch.pipeline import Match, Pipeline, exact, lpm, range_, ternary


def load(name: str) -> Pipeline:
    return Pipeline.load(case(name).json.read_bytes())


def changed(name: str, change: Callable[[dict[str, Any]], Any]) -> bytes:
    root: dict[str, Any] = json.loads(case(name).json.read_text())
    change(root)
    return json.dumps(root).encode()


# value_sets.p4: the bits of `way` show the parser states that a packet went through.

KNOWN, SERVICE, FOUND = 2, 4, 16


def way(pipeline: Pipeline, what: int, vlan: int = 0, port: int = 0, address: int = 0) -> int:
    header = bytes([what]) + (vlan << 4).to_bytes(2, "big") + port.to_bytes(2, "big")
    [(_, packet)] = pipeline.inject(1, header + address.to_bytes(9, "big"))
    return packet[0]


@pytest.mark.parametrize(
    ("member", "inside", "outside"),
    [
        (exact(7), (7,), (6, 0, 0x17)),
        (ternary(0x30, 0xF0), (0x30, 0x3F), (0x20, 0x40)),
        (lpm(0x80, 1), (0x80, 0xFE), (0x7F,)),
        (range_(3, 5), (3, 4, 5), (2, 6)),
    ],
)
def test_members_of_every_kind(member: Match, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    pipeline = load("value_sets")
    pipeline.value_sets.set_members("P.kinds", [[member]])
    assert all(way(pipeline, what) & KNOWN for what in inside)
    assert not any(way(pipeline, what) & KNOWN for what in outside)


def test_members_of_several_fields_and_wide_ones() -> None:
    pipeline = load("value_sets")
    pipeline.value_sets.set_members("P.kinds", [[exact(1)]])
    pipeline.value_sets.set_members(
        "P.services", [[exact(5), exact(80)], [ternary(0x100, 0xF00), range_(1000, 2000)]]
    )
    pipeline.value_sets.set_members("P.addresses", [[exact(1 << 71 | 3)]])
    assert way(pipeline, 1, 5, 80) == KNOWN | SERVICE
    assert way(pipeline, 1, 0x1AB, 1234) == KNOWN | SERVICE
    assert way(pipeline, 1, 5, 81, 1 << 71 | 3) == KNOWN | FOUND
    assert way(pipeline, 2, 0, 0, 3) == 0


def test_a_set_is_replaced_as_a_whole() -> None:
    pipeline = load("value_sets")
    pipeline.value_sets.set_members("P.kinds", [[exact(number)] for number in range(1, 5)])
    pipeline.value_sets.set_members(
        "P.kinds", [[exact(number)] for number in range(3, 7)]
    )  # as many as it holds, twice
    assert [bool(way(pipeline, what) & KNOWN) for what in range(8)] == [False] * 3 + [True] * 4 + [False]
    assert pipeline.value_sets.members("P.kinds") == [(exact(number),) for number in range(3, 7)]
    pipeline.value_sets.set_members("P.kinds", [])
    assert not way(pipeline, 3)


@pytest.mark.parametrize(
    ("name", "members", "error", "message"),
    [
        ("P.kinds", [[exact(number)] for number in range(5)], TableFull, "holds 4 members, not 5"),
        ("P.services", [[exact(1)]], ValueError, "have 2 fields, not 1"),
        ("P.kinds", [[exact(256)]], ValueError, "has 8 bits"),
        ("P.addresses", [[range_(1, 2)]], ValueError, "no range"),
        ("x", [], ValueError, r"no value set 'x'; the program has P\.addresses, P\.kinds, P\.services"),
    ],
)
def test_value_sets_refuse_what_does_not_fit(
    name: str, members: list[list[Match]], error: type[Exception], message: str
) -> None:
    pipeline = load("value_sets")
    pipeline.value_sets.set_members("P.kinds", [[exact(1)]])
    with pytest.raises(error, match=message):
        pipeline.value_sets.set_members(name, members)
    assert way(pipeline, 1) & KNOWN


# messages.p4


def test_messages_are_kept_while_somebody_listens() -> None:
    pipeline = load("messages")
    assert len(set(pipeline.program.messages)) == len(pipeline.program.messages)
    packet = bytes([41, 0xFE]) + (1 << 79).to_bytes(10, "big")
    quiet = pipeline.inject(1, packet)
    assert pipeline.take_log() == ([], 0)
    pipeline.set_logging(on=True)
    assert [port for port, _ in pipeline.inject(1, packet)] == [port for port, _ in quiet]
    assert pipeline.take_log().messages == [
        "parsed 41",
        "a packet",
        f"small -2 of wide {1 << 79}, sum 42",
        "at the 9 of 1",
    ]
    assert pipeline.take_log() == ([], 0)


def test_messages_that_nobody_takes_are_bounded() -> None:
    pipeline = load("messages")
    pipeline.set_logging(on=True)
    for _ in range(2000):
        pipeline.inject(1, bytes(12))
    messages, lost = pipeline.take_log()
    assert (len(messages), lost) == (4096, 2000 * 3 - 4096)


def test_a_failed_assertion_drops_the_packet_and_says_where() -> None:
    pipeline = load("messages")
    assert pipeline.inject(1, bytes([100]) + bytes(11)) == []
    assert pipeline.inject(3, bytes([77]) + bytes(11)) == []
    assert len(pipeline.inject(1, bytes([77]) + bytes(11))) == 1
    first, second = pipeline.take_log().messages
    assert first.startswith("assertion failed: messages.p4:")
    assert second != first
    assert pipeline.native.statistics()["aborted"] == 2


@pytest.mark.parametrize(
    ("text", "values", "filled"),
    [
        ("plain", [], "plain"),
        ("{}", [5], "5"),
        ("{x} and {y}", [1, -2], "1 and -2"),
        (r"\{not a place\} {}", [3], "{not a place} 3"),
    ],
)
def test_format_of_messages(text: str, values: list[int], filled: str) -> None:
    assert places(text) == len(values)
    assert fill(text, values) == filled


def test_messages_with_open_braces_or_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match="without its closing one"):
        places("{} and {")

    def more_values(root: dict[str, Any]) -> None:
        primitive = next(
            p for action in root["actions"] for p in action["primitives"] if p["op"] == "log_msg"
        )
        primitive["parameters"][0]["value"] += "{}"

    with pytest.raises(InvalidProgram, match=r"messages\.p4:\d+: the message .* takes"):
        Pipeline.load(changed("messages", more_values))


# Programs that never end, or use too many resources.


def jump_to_itself(root: dict[str, Any]) -> None:
    for action in root["actions"]:
        action["primitives"] = [{"op": "_jump", "parameters": [{"type": "hexstr", "value": "0x0"}]}]


def parse_the_same_state(root: dict[str, Any]) -> None:
    state = root["parsers"][0]["parse_states"][0]
    state["parser_ops"], state["transition_key"] = [], []
    state["transitions"] = [{"type": "default", "value": None, "mask": None, "next_state": state["name"]}]


@pytest.mark.parametrize("endless", [jump_to_itself, parse_the_same_state])
def test_a_program_that_does_not_end_drops_the_packet(endless: Callable[[dict[str, Any]], None]) -> None:
    pipeline = Pipeline.load(changed("flow", endless))
    assert pipeline.inject(1, bytes([1]) + bytes(8)) == []
    assert pipeline.native.statistics()["aborted"] == 1


def varbit_length(length: Any) -> Callable[[dict[str, Any]], None]:
    def change(root: dict[str, Any]) -> None:
        next(item for item in root["header_types"] if "max_length" in item)["max_length"] = length

    return change


def field_width(width: Any) -> Callable[[dict[str, Any]], None]:
    def change(root: dict[str, Any]) -> None:
        next(item for item in root["header_types"] if item["name"] == "op_t")["fields"][0][1] = width

    return change


def many_headers(root: dict[str, Any]) -> None:
    pattern = next(item for item in root["headers"] if item["name"] == "a512" or not item["metadata"])
    root["headers"] += [dict(pattern, name=f"more{n}", id=1000 + n) for n in range(20000)]


def updated(key: str, index: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda root: root[key][index].update(values)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(("varbits", varbit_length(length)) for length in (-1, 0, 1 << 30, "12", None, True)),
        *(("stacks", field_width(width)) for width in (0, -8, 1 << 17, 1 << 40, "8", None)),
        ("wide", many_headers),
        ("stacks", updated("header_stacks", 0, header_ids=[0, 1])),
        ("stacks", updated("header_stacks", 0, header_ids=[])),
        ("stacks", updated("header_stacks", 0, header_ids=[3, 3])),
        ("unions", updated("header_unions", 0, header_ids=[4, 4, 4])),
        ("unions", updated("header_unions", 1, header_ids=[4, 5, 6])),  # those of the first
        ("unions", updated("header_union_stacks", 0, header_union_ids=[2, 77])),
        ("unions", updated("header_union_types", 0, headers=[["b", "byte_t"]])),
        ("value_sets", updated("parse_vsets", 0, compressed_bitwidth=9)),
        ("value_sets", updated("parse_vsets", 0, name="other")),
    ],
)
def test_impossible_sizes_and_contradictions_are_refused(
    name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(InvalidProgram):
        Pipeline.load(changed(name, change))


# Elements of stacks at indexes that the packet gives.


def test_an_index_outside_a_stack_reads_nothing_and_writes_nothing() -> None:
    """BMv2 exits on such packets, so the vectors do not contain them."""

    def unguarded(root: dict[str, Any]) -> None:
        text = json.dumps(root).replace(
            '{"type": "hexstr", "value": "0x04"}', '{"type": "hexstr", "value": "0xff"}'
        )
        root.clear()
        root.update(json.loads(text))

    pipeline = Pipeline.load(changed("stacks", unguarded))
    labels = b"".join((number << 1 | (number == 3)).to_bytes(2, "big") for number in range(4))
    rng = random.Random(1)
    for index in (4, 5, 100, 254):
        for what in (1, 3):
            packet = bytes([what, index, index, 9]) + labels + rng.randbytes(6)
            [(_, out)] = pipeline.inject(1, packet)
            assert out.endswith(packet[4:])  # all labels as they were, and valid
