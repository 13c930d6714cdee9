# SPDX-License-Identifier: Apache-2.0
"""The results that the demo and the benchmark compute from the messages of their workers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from railweave.experiments import timeline
from railweave.experiments.accounting import account, chunks_of, sums_of
from railweave.experiments.allreduce import report as bench_report
from railweave.experiments.allreduce.run import Row, Sweep, sum_of_limits, with_contenders
from railweave.experiments.contenders import Contender
from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import JobOptions, environment_of
from railweave.experiments.messages import RailCounts, read
from railweave.experiments.records import Cpu, Record, Sample
from railweave.experiments.scenario import Scenario, Workload
from railweave.experiments.tables import byte_table, rail_table
from railweave.experiments.training import report, run
from railweave.experiments.training.model import TrainingOptions
from railweave.experiments.training.reference import Reference
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.lab.flows import Flow, Flows
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

TWO = planes(2, ("ina", "tcp"))
# Bytes that all ranks of `demo_result` have sent.
TCP_SENT = {
    **{"payload": 3_800_000, "headers": 120_000, "recovery": 280_000},
    **dict.fromkeys(("resends", "heartbeats", "control"), 0),
}


def step_message(rank: int, step: int) -> dict[str, Any]:
    begin = 10.0 + step
    whole = {"survey": False, "repair": False}
    slices = [
        {"rail": "ina", "start_s": begin + 0.2, "end_s": begin + 0.6, "bytes": 3_000_000, **whole},
        {"rail": "tcp", "start_s": begin + 0.2, "end_s": begin + 0.7, "bytes": 1_000_000, **whole},
    ]
    times = {"began": begin, "computed": begin + 0.2, "reduced": begin + 0.7}
    return {"event": "step", "rank": rank, "step": step, "loss": 0.5 + rank, "slices": slices, **times}


def recorded() -> tuple[run.Recorder, list[run.Step]]:
    seen: list[run.Step] = []
    recorder = run.Recorder(2, seen.append)
    for rank in range(2):
        recorder.take({"event": "start", "rank": rank, "time": 10.0, "slices": []})
    for step in range(2):
        for rank in range(2):
            recorder.take(step_message(rank, step))
    return recorder, seen


def demo_result(out: Path) -> run.DemoResult:
    recorder, _ = recorded()
    sent = {
        "ina": RailCounts(
            *(6_000_000, 6_400_000, 6_400_000, 3, 2, 0.8), sent_payload=6_000_000, sent_headers=400_000
        ),
        "tcp": RailCounts(
            *(2_000_000, 2_100_000, 0, 0, 2, 1),
            sent_payload=1_900_000,
            sent_headers=60_000,
            sent_recovery=140_000,
        ),
    }
    interfaces = {
        "ina": {host: InterfaceCounters(6_400_000, 1, 0) for host in TWO.hosts},
        "tcp": {host: InterfaceCounters(2_110_000, 1, 0) for host in TWO.hosts},
    }
    ina, tcp = account(TWO.planes, {0: sent, 1: sent}, interfaces)
    reference = Reference(np.zeros(1, np.float32), 0.97, 0.1, 1e-8, 2e-8, 8e-8)
    return run.DemoResult(
        options=run.DemoOptions(TWO, TrainingOptions(steps=2), LabOptions(out)),
        steps=recorder.steps,
        spans=recorder.spans(),
        rails=[replace(ina, switch_results=77, expected_results=77), tcp],
        switch_counters={"ina": {"result": 77, "absorb": 77}},
        accuracy=0.97,
        ranks_identical=True,
        max_abs_diff=4e-8,
        reference=reference,
        seconds=1.7,
    )


def test_a_step_is_told_when_all_ranks_have_taken_it() -> None:
    recorder, seen = recorded()
    assert [step.number for step in seen] == [0, 1]
    assert seen[0].loss == 1.0
    assert seen[0].compute_s == pytest.approx(0.2)
    assert seen[0].communicate_s == pytest.approx(0.5)
    assert seen[0].shares == {"ina": 0.75, "tcp": 0.25}
    assert seen[0].goodput_bps["ina"] == pytest.approx(60e6)
    assert max(span.end_s for span in recorder.spans()) == pytest.approx(1.7)
    assert recorder.chunks({"ina": 256, "tcp": 256}) == {
        "ina": 2 * chunks_of(750_000, 256, 2),
        "tcp": 2 * chunks_of(250_000, 256, 2),
    }


def test_accounts_sum_over_hosts(tmp_path: Path) -> None:
    ina, tcp = demo_result(tmp_path).rails
    assert (ina.agent_bytes, ina.interface_bytes, ina.retransmissions) == (12_800_000, 12_800_000, 6)
    assert (ina.share, tcp.share) == (0.75, 0.25)
    assert ina.goodput_bps == pytest.approx(60e6)
    assert ina.payload_bytes == 6_000_000
    assert tcp.sent == TCP_SENT
    assert (tcp.bytes_agree, tcp.unexplained_bytes, tcp.never_left_bytes) == (True, 20_000, 0)
    assert not replace(tcp, interface_bytes=4_300_000).bytes_agree
    assert not replace(tcp, sent={**tcp.sent, "recovery": 0}).bytes_agree
    assert not replace(tcp, sent={**tcp.sent, "headers": -1, "payload": 3_920_001}).bytes_agree
    assert not replace(ina, switch_results=76).results_agree
    assert not replace(ina, switch_results=76, sent={**ina.sent, "recovery": 9}).results_agree
    assert replace(ina, switch_results=76, failures=1).results_agree
    assert tcp.results_agree


def test_what_was_multicast_and_fetched_has_columns_where_there_is_any(tmp_path: Path) -> None:
    rails = demo_result(tmp_path).rails
    counts = RailCounts(multicast_bytes=1_500_000, fetched_bytes=20_000)
    (summed,) = account(TWO.planes[:1], {0: {"ina": counts}, 1: {"ina": counts}}, {"ina": {}})
    for shown in (rails, [summed]):
        out = StringIO()
        Console(file=out, width=200).print(rail_table(shown))
        lines = out.getvalue()
        assert all((word in lines) == (shown is not rails) for word in ("fetched", "3.000", "0.040"))


def test_other_traffic_has_rows_of_its_own(tmp_path: Path) -> None:
    counts = {
        rank: {"tcp": RailCounts(bytes_sent=10_000, sent_payload=9_000, sent_headers=1_000)}
        for rank in range(2)
    }
    flows = {
        "h1": Flows({Flow("tcp", (40_000, 9001)): 10_000, Flow("tcp", (50_000, 7777)): 40_000}),
        "h2": Flows(
            {Flow("tcp", (9001, 40_000)): 9_000, Flow("tcp", (7777, 50_000)): 4_000, Flow("icmp"): 600}
        ),
    }
    sent = {"h1": 52_000, "h2": 14_980}
    interfaces = {"tcp": {host: InterfaceCounters(sent[host], 99, 0, flows[host]) for host in flows}}
    (tcp,) = account(TWO.planes[1:], counts, interfaces, {"tcp": {9001, 9002}})
    assert list(tcp.others) == ["tcp port 7777", "icmp"]
    assert sum(tcp.others.values()) == 52_000 + 14_980 - 20_000  # with the headers of all frames
    assert (tcp.bytes_agree, tcp.unexplained_bytes, tcp.never_left_bytes) == (True, 0, 0)
    out = StringIO()
    Console(file=out, width=200).print(byte_table([tcp]))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["tcp", "port", "7777", "0.046"] in lines
    assert ["icmp", "0.001"] in lines
    (more,) = account(TWO.planes[1:], counts, interfaces)  # without the agents' ports
    assert not more.bytes_agree
    assert not replace(tcp, interface_bytes=80_000).bytes_agree
    assert replace(tcp, interface_bytes=67_300, handshake_bytes=200).bytes_agree
    assert not replace(tcp, interface_bytes=67_300).bytes_agree


def test_what_never_left_is_no_negative_row_and_is_explained_by_a_failure(tmp_path: Path) -> None:
    _, tcp = demo_result(tmp_path).rails
    lost = replace(tcp, interface_bytes=4_000_000)
    assert (lost.unexplained_bytes, lost.never_left_bytes, lost.bytes_agree) == (0, 200_000, False)
    assert replace(lost, disturbed=True).bytes_agree
    assert replace(lost, failures=1).bytes_agree
    assert not replace(lost, failures=1, interface_bytes=4_300_000).bytes_agree
    out = StringIO()
    Console(file=out, width=200).print(byte_table([lost]))
    assert "never left" in out.getvalue()
    assert "-0" not in out.getvalue()


def test_chunks_are_data_and_their_exponents() -> None:
    assert chunks_of(252 * 252, 256, 4) == 252 + 1
    assert chunks_of(252 * 252 + 1, 256, 4) == 253 + 2
    assert [chunks_of(elements, 256, 4) for elements in (1, 24, 126, 127, 256, 257)] == [1, 1, 1, 2, 3, 3]


def test_of_netreduce_rails_the_switch_sums_data_alone() -> None:
    assert [sums_of(elements, 256) for elements in (1, 1024, 1025, 256 * 257)] == [0, 0, 5, 257]
    recorder = run.Recorder(2, lambda _: None)
    recorder.take({"event": "joined", "rank": 0})  # has no slices
    sizes, lanes = [4 * 1024, 4 * 256 * 257], {"netreduce": 256, "ina": 256}
    for rail in lanes:
        main = {"rail": rail, "survey": False, "repair": False}
        slices = [{**main, "bytes": size} for size in sizes]
        slices += [{**main, "bytes": 5000, "survey": True}, {**main, "bytes": 6000, "repair": True}]
        recorder.take({"event": "start", "rank": 0, "time": 0.0, "slices": slices})
    assert recorder.chunks(lanes, ["netreduce"]) == {"netreduce": 257, "ina": (5 + 1) + (262 + 2) + 6}


def test_json_has_what_the_schema_says(tmp_path: Path) -> None:
    value = json.loads(json.dumps(report.as_json(demo_result(tmp_path))))
    assert value["ok"] is True
    assert [value[key] for key in ("hosts", "switch", "steps")] == [2, "embedded", 2]
    assert value["switch_results"] == 77
    assert value["rails"][1] == {
        "name": "tcp",
        "agent_bytes": 4_200_000,
        "sent": TCP_SENT,
        "interface_bytes": 4_220_000,
        "failures": 0,
        "goodput_bps": 16e6,
        "share": 0.25,
        "retransmissions": 0,
    }


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"ranks_identical": False}, "different parameters"),
        ({"max_abs_diff": 1e-6}, "1.00e-06, more than 8.00e-08"),
        ({"rails": ()}, ""),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    result = replace(demo_result(tmp_path), **change)
    assert result.ok is (word == "")
    assert word in report.summary(result)


def test_rails_whose_counts_differ_are_named(tmp_path: Path) -> None:
    result = demo_result(tmp_path)
    ina, tcp = result.rails
    wrong = replace(result, rails=[replace(ina, switch_results=70), replace(tcp, interface_bytes=1)])
    assert not wrong.ok
    assert "bytes of rail tcp" in report.summary(wrong)
    assert "switch results of rail ina" in report.summary(wrong)


def test_the_report_is_readable(tmp_path: Path) -> None:
    console = Console(file=StringIO(), width=100)
    report.print_report(demo_result(tmp_path), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("75.0%", "60.00", "12.800", "77/77", "0.9700 (one process: 0.9700)", "4.00e-08"):
        assert part in text
    assert "NO" not in text


def test_files_are_a_picture_and_a_trace(tmp_path: Path) -> None:
    report.write_files(demo_result(tmp_path))
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 2 * 2 * 3
    assert {(event["pid"], event["tid"]) for event in spans} == {
        (r, row) for r in range(2) for row in range(3)
    }
    first = next(event for event in spans if event["cat"] == "ina")
    assert (first["ts"], first["dur"]) == pytest.approx((2e5, 4e5))
    assert first["args"] == {"bytes": 3_000_000}
    rows = [event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 0]
    assert rows == ["compute", "ina", "tcp"]


def test_rails_of_one_kind_have_shades_of_one_colour() -> None:
    assert timeline.colour("tcp0") == timeline.colour("tcp")
    assert timeline.colour("tcp1") != timeline.colour("tcp0")
    assert all(0 <= part <= 1 for row in ("tcp3", "ina", "compute") for part in timeline.colour(row))


def test_a_step_is_a_line() -> None:
    _, steps = recorded()
    line = report.step_line(steps[0], 2, ["ina", "tcp"])
    assert line.startswith(
        "step    1/2  loss 1.0000  compute 200 ms  allreduce 500 ms  ina 75% at 60 Mbit/s, tcp"
    )


def test_chatter_is_no_message() -> None:
    assert read("Adding interface") is None
    assert read('{"event": "step"') is None
    assert read('{"other": 1}') is None
    assert read('{"event": "step"}') == {"event": "step"}


def test_hosts_know_their_rails_from_the_environment() -> None:
    topology = planes(2, ("ina", "tcp"), (10**8, 0))
    job = JobOptions("demo", ["program"], shares={"ina": 0.75, "tcp": 0.25})
    environment = environment_of(topology, "h2", 1, "10.255.0.250:9600", job)
    assert environment["RAILWEAVE_RAILS"] == "ina=ina@h2-ina/100000000,tcp=tcp@h2-tcp"
    assert environment["RAILWEAVE_SHARES"] == "ina=0.750000,tcp=0.250000"
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("1", "2")
    assert environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    only = environment_of(topology, "h1", 0, "", replace(job, planes=("tcp",), shares=None))
    assert only["RAILWEAVE_RAILS"] == "tcp=tcp@h1-tcp"
    assert (only["MASTER_ADDR"], only["GLOO_SOCKET_IFNAME"]) == ("10.255.0.1", "h1-tcp")
    assert "RAILWEAVE_SHARES" not in only


# ------------------------------------------------------------ the benchmark


BENCH = Scenario(
    "bench", (), Workload((4 << 20,), warmup=1, iterations=3), hosts=4, rails=("ina", "tcp"), repetitions=1
)


def row(contender: str, seconds: float) -> Row:
    return Row(contender, 4 << 20, BENCH.workload, [seconds, seconds, 9.0], 0, 4, 2e8, {})


def record(contender: Contender, time_s: float, wrong: int = 0) -> Record:
    times = (time_s * 1e6,) * 3
    sample = Sample(4 << 20, times, 12, wrong)
    shares = {str(4 << 20): {"ina": 0.75, "tcp": 0.25}} if contender.kind == "railweave" else {}
    versions = {"torch": "2.13.0"} if contender.kind == "gloo" else {}
    return Record(
        "", "bench", contender.name, contender.kind, 0, "ok", "", (sample,), shares, versions=versions
    )


def test_bandwidths_are_those_of_nccl_tests() -> None:
    measured = row("ina+tcp", 0.25)
    assert measured.median_s == 0.25
    assert measured.algbw_bps == pytest.approx((4 << 20) * 8 / 0.25)
    assert measured.busbw_bps == pytest.approx(measured.algbw_bps * 1.5)
    assert measured.limit_fraction == pytest.approx(measured.algbw_bps / 2e8)
    assert replace(measured, limit_bps=0.0).limit_fraction is None
    assert 0.25 < measured.p99_s <= 9.0


@pytest.mark.parametrize(
    ("collective", "factor"), [("reduce_scatter", 0.75), ("all_gather", 0.75), ("broadcast", 1)]
)
def test_other_collectives_have_factors_of_their_own(collective: str, factor: float) -> None:
    work = replace(BENCH.workload, collective=collective, root=1)
    measured = replace(row("tcp", 0.25), work=work)
    assert measured.busbw_bps == pytest.approx(measured.algbw_bps * factor)
    columns = bench_report.line(measured).split()
    assert columns[0] == str(4 << 20)
    assert columns[5] == f"{measured.algbw_bps * factor / 1e6:.1f}"
    told = bench_report.row_json(measured)
    assert told["op"] == ("sum" if collective == "reduce_scatter" else None)
    assert told["root"] == (1 if collective == "broadcast" else None)
    tcp = planes(4, ("tcp",)).planes
    assert sum_of_limits(tcp, collective) == pytest.approx(sum_of_limits(tcp) * 1.5 / factor)


def test_bench_json_and_comparisons() -> None:
    scenario = with_contenders(BENCH, each_alone=True, baselines=["ring"])
    gloo = Contender("gloo", "gloo", ("tcp",))
    scenario = replace(scenario, contenders=(*scenario.contenders[:3], gloo))
    times = (0.25, 0.5, 0.5, 0.75)
    sweep = Sweep(scenario, [record(*each) for each in zip(scenario.contenders, times, strict=True)])
    value = json.loads(json.dumps(bench_report.as_json(sweep)))
    assert value["rails"] == ["ina", "tcp"]
    (together,) = value["rows"]
    assert (together["time_us_median"], together["shares"]) == (250000, {"ina": 0.75, "tcp": 0.25})
    limit = 1e8 * 1008 / 1082 + 1e8 * 1448 / 1514 / 1.5
    assert together["limit_bps"] == pytest.approx(limit)
    assert value["alone"]["tcp"][0]["wrong"] == 0
    assert value["baselines"]["gloo"]["version"] == "2.13.0"
    assert value["ok"]
    first, second = bench_report.comparisons(sweep)
    assert "100.0% of the sum" in first
    assert "3.00 times as fast as gloo 2.13.0" in second
    busy = replace(record(gloo, 1), cpu=Cpu(1.0, 0.02, 0.1, 3.5, 2), bottleneck="cpu")
    (limit_text,) = bench_report.bottlenecks(Sweep(scenario, [busy]))
    assert limit_text.startswith("The processors were the bottleneck of gloo (runs: 1 of 1): ")
    assert bench_report.bottlenecks(sweep) == []  # nothing is known
    assert not Sweep(scenario, [record(scenario.contenders[0], 1, wrong=2)]).ok


def test_rows_are_over_all_rounds() -> None:
    scenario = with_contenders(replace(BENCH, repetitions=2))
    (contender,) = scenario.contenders
    first, second = record(contender, 0.25, wrong=2), replace(record(contender, 0.5), round=1)
    second = replace(second, shares={str(4 << 20): {"ina": 0.25, "tcp": 0.75}}, cpu=Cpu(1, 0, 0, 1, 1))
    sweep = Sweep(scenario, [first, second])
    ((both,),) = sweep.rows.values()
    assert list(both.seconds) == [0.25] * 3 + [0.5] * 3
    assert both.shares == {"ina": 0.5, "tcp": 0.5}
    assert both.wrong == 2
    assert "# 3 calls per size in each of 2 rounds, after" in bench_report.header(scenario)
    linked = Sweep(scenario, [replace(first, bottleneck="links"), second])
    assert "bottleneck of ina+tcp (runs: 1 of 2)" in bench_report.bottlenecks(linked)[0]


def test_a_baseline_gets_a_tcp_plane() -> None:
    only = replace(BENCH, rails=("ina",), rates=(50_000_000,))
    scenario = with_contenders(only, baselines=["ring"])
    assert [(each.name, each.rails) for each in scenario.contenders] == [
        ("ina", ("ina",)),
        ("ring", ("tcp",)),
    ]
    assert [plane.rate_bps for plane in scenario.network.planes] == [50_000_000, 50_000_000]
    with pytest.raises(OptionError, match="has no tcp plane"):
        with_contenders(replace(only, topology="leaf-spine:racks=2,hosts=1"), baselines=["ring"])
    with pytest.raises(OptionError, match="contender 'nccl': expected one of gloo"):
        with_contenders(BENCH, baselines=["nccl"])
