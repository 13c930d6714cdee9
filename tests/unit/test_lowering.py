# SPDX-License-Identifier: Apache-2.0
"""The lowering of programs: its refusals, its fusion, and its robustness against invalid programs."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hostile.configs import mutilated
from vectors.case import case
from vectors.embedded import Embedded

from railweave._native.engine import Engine, InvalidPlan
from railweave.switch.errors import InvalidProgram, UnsupportedConstruct
from railweave.switch.lowering import lower
from railweave.switch.lowering.expr import Graph
from railweave.switch.lowering.messages import fill, places
from railweave.switch.pipeline import MeterConfig, Pipeline, Target, exact

NAMES = (
    "arithmetic",
    "parsing",
    "tables",
    "state",
    "control",
    "lanes",
    "varbits",
    "stacks",
    "unions",
    "flow",
)


def source(name: str) -> dict[str, Any]:
    root: dict[str, Any] = json.loads(case(name).json.read_text())
    return root


def lowered(root: dict[str, Any]) -> Pipeline:
    return Pipeline.load(json.dumps(root).encode())


Change = Callable[[dict[str, Any]], Any]


def changed(name: str, change: Change) -> Pipeline:
    root = source(name)
    change(root)
    return lowered(root)


def action(root: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in root["actions"] if item["name"] == name)


# Refusals name the construct and its place.


def test_unknown_primitive_is_named_with_its_line() -> None:
    root = source("control")
    primitive = action(root, "forward")["primitives"][0]
    primitive["op"] = "frobnicate"
    with pytest.raises(UnsupportedConstruct, match=r"control\.p4:\d+: the primitive 'frobnicate'") as caught:
        lowered(root)
    assert str(caught.value).startswith(f"control.p4:{primitive['source_info']['line']}:")


@pytest.mark.parametrize(
    ("change", "construct"),
    [
        (lambda root: root["header_types"][2]["fields"].append(["rest", 8, False, True]), "saturating field"),
        (lambda root: root.update(extern_instances=[{"name": "x", "type": "ext"}]), "extern of type 'ext'"),
        (lambda root: root["pipelines"][0]["tables"][0].update(type="magic"), "table of type 'magic'"),
        (
            lambda root: root["calculations"].append({"name": "c", "algo": "random"}),
            "hash algorithm 'random'",
        ),
        (lambda root: root["parsers"].append(root["parsers"][0]), "2 parsers"),
        (
            lambda root: root["deparsers"][0].update(primitives=[{"op": "x", "parameters": []}]),
            "primitive 'x'",
        ),
    ],
)
def test_unknown_constructs_are_refused(change: Any, construct: str) -> None:
    with pytest.raises(UnsupportedConstruct, match=construct):
        changed("control", change)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"pipelines": 1, "header_types": 2}']
)
def test_what_is_no_program(text: bytes) -> None:
    with pytest.raises(InvalidProgram):
        lower(text)


# Documents and constructs that BMv2 accepts, too.


def test_documents_are_read_as_jsoncpp_reads_them() -> None:
    document = case("control").json.read_bytes()
    more = b'{"field of a newline": "raw\nand\ttab", "no UTF-8": "\xff",'
    assert lower(document.replace(b"{", more, 1)) == lower(document)


def test_tables_may_name_their_actions() -> None:
    root = source("control")
    expected = lower(json.dumps(root).encode())
    [hosts] = [table for table in root["pipelines"][0]["tables"] if table["name"] == "hosts"]
    del hosts["action_ids"]
    assert lower(json.dumps(root).encode()) == expected
    hosts["actions"].append("nowhere")
    with pytest.raises(InvalidProgram, match="an action that does not exist"):
        lowered(root)


def test_tables_may_have_action_profiles_of_their_own() -> None:
    root = source("selectors")
    [*pipelines] = root["pipelines"]
    profiles = {profile["name"]: profile for one in pipelines for profile in one.pop("action_profiles")}
    tables = [table for one in pipelines for table in one["tables"] if "action_profile" in table]
    for table in tables:
        selector = profiles[table.pop("action_profile")].get("selector")
        table |= {"act_prof_name": f"of {table['name']}", "selector": selector}
    program = lowered(root).program
    assert {name: (info.size, info.selector) for name, info in program.profiles.items()} == {
        table["act_prof_name"]: (0, table["selector"] is not None) for table in tables
    }


def test_direct_counters_may_have_the_same_name() -> None:
    root = source("state")
    counters = set(lowered(root).program.counters)
    direct = {"name": "same", "size": 1, "is_direct": True, "binding": "hosts"}
    root["counter_arrays"] += [{**direct, "id": 100 + number} for number in range(4)]
    assert set(lowered(root).program.counters) == counters


@pytest.mark.parametrize("field", ["seven", "r33", "r65"])
def test_a_direct_meter_may_write_its_color_to_a_header(field: str) -> None:
    root = source("cells")
    [meter] = [meter for meter in root["meter_arrays"] if meter["is_direct"]]
    meter["result_target"] = ["o", field]
    pipeline = lowered(root)
    entry = pipeline.tables["I.counted"].insert([exact(5)], Target("I.miss"))
    packet = bytes([255, 5]) + bytes(100)  # no register has the index 255
    widths = (1, 7, 33, 64, 71)
    names = ("one", "seven", "r33", "r64", "r65")

    def fields() -> dict[str, int]:
        [(_, out)] = pipeline.inject(1, packet)
        values, left = {}, int.from_bytes(out[11:], "big")
        at = 8 * len(out[11:])
        for name, width in zip(names, widths, strict=True):
            at -= width
            values[name] = left >> at & (1 << width) - 1
        return values

    green = fields()
    pipeline.tables["I.counted"].set_direct_meter(entry, MeterConfig(1, 1, 1, 1))
    assert fields() == {**green, field: 2}


# Programs that never end, or use too many resources.


def jump(to: str) -> Change:
    def change(root: dict[str, Any]) -> None:
        for action in root["actions"]:
            action["primitives"] = [{"op": "_jump", "parameters": [{"type": "hexstr", "value": to}]}]

    return change


def parse_the_same_state(root: dict[str, Any]) -> None:
    state = root["parsers"][0]["parse_states"][0]
    state["parser_ops"], state["transition_key"] = [], []
    state["transitions"] = [{"type": "default", "value": None, "mask": None, "next_state": state["name"]}]


@pytest.mark.parametrize("endless", [jump("0x0"), parse_the_same_state])
def test_a_program_that_does_not_end_drops_the_packet(endless: Change) -> None:
    pipeline = changed("flow", endless)
    assert pipeline.inject(1, bytes([1]) + bytes(8)) == []
    assert pipeline.native.statistics()["aborted"] == 1


def varbit_length(length: Any) -> Change:
    def change(root: dict[str, Any]) -> None:
        next(item for item in root["header_types"] if "max_length" in item)["max_length"] = length

    return change


def field_width(width: Any) -> Change:
    def change(root: dict[str, Any]) -> None:
        next(item for item in root["header_types"] if item["name"] == "op_t")["fields"][0][1] = width

    return change


def many_headers(root: dict[str, Any]) -> None:
    pattern = next(item for item in root["headers"] if item["name"] == "a512" or not item["metadata"])
    root["headers"] += [dict(pattern, name=f"more{n}", id=1000 + n) for n in range(20000)]


def updated(key: str, index: int, **values: Any) -> Change:
    return lambda root: root[key][index].update(values)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("control", updated("pipelines", 0, init_table="nowhere")),
        ("control", updated("deparsers", 0, order=["nothing"])),
        ("control", updated("parsers", 0, init_state="nowhere")),
        *(("flow", jump(to)) for to in ("0x2", "-0x1", "-0x99")),
        ("control", lambda root: root["pipelines"][0]["tables"][0]["action_ids"].append(999)),
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
def test_impossible_sizes_references_and_contradictions_are_refused(name: str, change: Change) -> None:
    with pytest.raises(InvalidProgram):
        changed(name, change)


@pytest.mark.parametrize("name", NAMES)
def test_mutilated_programs_are_refused_or_run(name: str) -> None:
    """Drop, copy or replace parts of the JSON: only our exception is raised, and packets do no harm."""
    rng = random.Random(name)
    original = case(name).json.read_bytes()
    survivors = 0
    for _ in range(25):
        try:
            pipeline = Pipeline.load(mutilated(rng, original))
        except InvalidProgram:
            continue
        survivors += 1
        for size in (0, 1, 20, 60, 400):
            pipeline.inject(rng.randrange(512), rng.randbytes(size))
    assert survivors < 25


def test_damaged_plans_are_refused_or_harmless() -> None:
    """The engine checks all numbers of a plan, although plans come from the lowering."""
    rng = random.Random(7)
    plans = [lower(case(name).json.read_bytes())[1] for name in NAMES]
    refused = 0
    for _ in range(300):
        plan = bytearray(rng.choice(plans))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(plan) // 4) * 4
            struct.pack_into("<I", plan, at, rng.choice((0, 1, 0xFFFFFFFF, 1 << 31, rng.randrange(1 << 16))))
        try:
            engine = Engine(bytes(plan[: rng.choice((len(plan), len(plan), rng.randrange(len(plan))))]))
        except InvalidPlan:
            refused += 1
            continue
        except MemoryError:
            continue
        for size in (0, 14, 64, 300):
            engine.inject(1, rng.randbytes(size))
    assert refused > 50


# Messages of `log_msg`.


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
        changed("messages", more_values)


# Fusion.


def test_lanes_are_fused() -> None:
    pipeline = case("lanes").pipeline()
    fused = {fusion.action: fusion.vectors for fusion in pipeline.program.fusions}
    for name in ("put", "add", "greatest", "greatest_if", "least", "saturate", "mix"):
        assert {lanes for _, lanes in fused[f"I.{name}"]} == {16}, name
    assert {op for op, _ in fused["I.greatest"]} == {"V_MAXS"}
    assert {op for op, _ in fused["I.saturate"]} == {"V_ADDSS"}


# Ranges of expressions.


def test_ranges_enclose_every_value() -> None:
    rng = random.Random(5)
    graph = Graph()
    for _ in range(3000):
        values = [rng.randint(-(1 << 20), 1 << 20), rng.randint(-(1 << 9), 1 << 9)]
        nodes = []
        for value in values:
            width = max(value.bit_length() + rng.randint(0, 3), 1) + 1
            leaf = graph.leaf("field", (value, width, rng.random()), width, signed=value < 0)
            nodes.append(leaf)
        a, b = values
        count = abs(b) % 40
        shift = graph.leaf("field", ("count", count, rng.random()), 6)
        cases = {
            "+": a + b,
            "-": a - b,
            "*": a * b,
            "&": a & b,
            "|": a | b,
            "^": a ^ b,
            "<<": a << count,
            ">>": a >> count,
        }
        for op, value in cases.items():
            node = graph.binary(op, nodes[0], shift if op in {"<<", ">>"} else nodes[1])
            assert node.low is not None
            assert node.high is not None
            assert node.low <= value <= node.high, (op, a, b)
        inverted = graph.invert(nodes[0])
        assert inverted.fits(~(1 << 24), 1 << 24)
        assert inverted.low is not None
        assert inverted.low <= ~a


# BMv2 loads programs that have fields of 0 bits. Such fields are 0 and take no room in packets.


@pytest.mark.parametrize("name", ["arithmetic", "parsing", "varbits", "stacks", "unions"])
def test_fields_of_no_bits_change_nothing(name: str) -> None:
    recorded = case(name)
    root = json.loads(recorded.json.read_text())
    for kind in root["header_types"]:
        kind["fields"] += [["nothing", 0, False], ["nought", 0, True]]
    switch = Embedded(recorded.schema, lowered(root))
    for number, (step, result) in enumerate(recorded.load()):
        assert switch.do(step) == result, f"step {number}: {step}"


def test_a_field_of_no_bits_is_0_whatever_is_written_to_it() -> None:
    root = source("control")
    for kind in root["header_types"]:
        kind["fields"].append(["nothing", 0, False])
    [header] = [item["name"] for item in root["headers"] if not item["metadata"]][:1]
    nothing = {"type": "field", "value": [header, "nothing"]}
    port = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
    action(root, "forward")["primitives"] += [
        {"op": "assign", "parameters": [nothing, {"type": "hexstr", "value": "0x7"}]},
        {"op": "assign", "parameters": [port, nothing]},
    ]
    pipeline = lowered(root)
    pipeline.tables["hosts"].insert([exact(0x0A000001)], Target("forward", (7,)))
    packet = bytes([9]) + (0x0A000001).to_bytes(4, "big") + bytes(3) + b"payload"
    assert [port for port, _ in pipeline.inject(3, packet)] == [0]
    assert "call" not in str(pipeline.traces.run(3, packet))


def test_pipelines_may_come_in_any_order() -> None:
    root = source("tables")
    root["pipelines"].reverse()
    program, swapped = lower(json.dumps(root).encode())
    Engine(swapped)
    Pipeline(program, swapped)
    root["pipelines"].reverse()
    assert lower(json.dumps(root).encode()) == (program, swapped)
