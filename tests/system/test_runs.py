# SPDX-License-Identifier: Apache-2.0
"""Short runs of users' commands over all rails, and their JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from system.command import Start, result_of

from railweave.experiments.contenders import Contender
from railweave.experiments.problem import BOTH
from railweave.experiments.records import Records
from railweave.experiments.scenario import Scenario, Workload
from railweave.switch.targets import TARGETS

RAIL_KEYS = {
    *("name", "sent", "failures", "agent_bytes", "interface_bytes", "goodput_bps", "share"),
    "retransmissions",
}
ROW_KEYS = {
    *(
        "bytes",
        "dtype",
        "op",
        "root",
        "time_us_mean",
        "time_us_median",
        "time_us_p99",
        "algbw_bps",
        "busbw_bps",
        "wrong",
    ),
    *("limit_bps", "limit_fraction", "shares", "time_us_interval", "times_us"),
}


def test_demo_over_three_rails(start: Start, tmp_path: Path) -> None:
    result = result_of(start, tmp_path, "demo", "--hosts", "3", "--steps", "3")
    assert result["ok"]
    assert (result["hosts"], result["switch"], result["steps"]) == (3, "embedded", 3)
    assert result["max_abs_diff"] <= result["max_abs_diff_bound"] < 1e-5
    assert result["accuracy"] == result["accuracy_one_process"]
    assert [rail["name"] for rail in result["rails"]] == ["ina", "tcp", "rdma"]
    for rail in result["rails"]:
        assert set(rail) == RAIL_KEYS
        assert rail["share"] > 0.2
        assert rail["agent_bytes"] == pytest.approx(rail["interface_bytes"], rel=0.01)
    # 43 % of a million float32 in chunks of 256, three times. Exponents and the rendezvous add some results.
    assert 4000 < result["switch_results"] < 6000
    trace = json.loads((tmp_path / "out" / "1" / "trace.json").read_text())["traceEvents"]
    assert {event["cat"] for event in trace if event["ph"] == "X"} == {"compute", "ina", "tcp", "rdma"}
    assert (tmp_path / "out" / "1" / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_demo_on_bmv2(start: Start, tmp_path: Path) -> None:
    if missing := TARGETS["bmv2"].missing():
        pytest.skip(missing)
    result = result_of(start, tmp_path, "demo", "--switch", "bmv2", "--hosts", "2", "--steps", "2")
    assert result["ok"]
    assert result["switch"] == "bmv2"
    assert result["switch_results"] > 100


def test_demo_over_lossy_planes(start: Start, tmp_path: Path) -> None:
    result = result_of(
        start, tmp_path, "demo", "--hosts", "2", "--steps", "2", "--rails", "ina,rdma", "--loss", "0.02"
    )
    assert result["ok"]
    for rail in result["rails"]:
        assert rail["retransmissions"] > 0


def test_bench_checks_every_size(start: Start, tmp_path: Path) -> None:
    result = result_of(
        *(start, tmp_path, "bench", "all-reduce", "--hosts", "2", "--sizes", "4,1K:2K,256K", "--iters", "3"),
        *("--rails", "ina,tcp", "--rate", "1G,0", "--each-alone", "--repeat", "2"),
    )
    assert [row["bytes"] for row in result["rows"]] == [4, 1024, 2048, 262144]
    for row in result["rows"]:
        assert set(row) == ROW_KEYS
        assert len(row["times_us"]) == 2 * 3  # three calls in each of two rounds
        assert row["wrong"] == 0
        assert row["limit_fraction"] is None  # the tcp plane is unshaped
    assert set(result["alone"]) == {"ina", "tcp"}
    (row,) = (row for row in result["alone"]["ina"] if row["bytes"] == 262144)
    assert row["limit_fraction"] == pytest.approx(row["algbw_bps"] / row["limit_bps"])
    assert row["algbw_bps"] > 0


SHARDS = 102396  # bytes of three shards of whole elements; together they have 100 KiB at most


@pytest.mark.parametrize(
    ("collective", "options", "whole", "root"),
    [
        ("reduce-scatter", ("--dtype", "int32", "--op", "avg"), SHARDS, None),
        ("all-gather", ("--dtype", "int32"), SHARDS, None),
        ("broadcast", ("--root", "2"), 102400, 2),
    ],
)
def test_bench_of_other_collectives(
    start: Start, tmp_path: Path, collective: str, options: tuple[str, ...], whole: int, root: int | None
) -> None:
    result = result_of(
        *(start, tmp_path, "bench", collective, "--hosts", "3", "--sizes", "12,100K,512K"),
        *("--iters", "2", "--rate", "1G", "--shares", "rdma=1,ina=1,tcp=2", *options),
    )
    assert result["collective"] == collective.replace("-", "_")
    assert [row["bytes"] for row in result["rows"]][:2] == [12, whole]
    for row in result["rows"]:
        assert set(row) == ROW_KEYS
        assert (row["wrong"], row["root"]) == (0, root)
    shares = {"ina": 0.25, "tcp": 0.5, "rdma": 0.25}
    assert result["rows"][2]["shares"] == pytest.approx(shares, abs=0.01)


def test_a_scenario_of_two_collectives_at_once_is_measured_from_its_file(
    start: Start, tmp_path: Path
) -> None:
    scenario = Scenario(
        "mine",
        (Contender("both", "railweave"), Contender("ring", "ring", ("tcp0",))),
        Workload((4096, 65536), BOTH, iterations=2),
        hosts=2,
        rails=("tcp", "tcp"),
        repetitions=2,
    )
    file = tmp_path / "mine.toml"
    file.write_text(scenario.as_toml())
    result = result_of(start, tmp_path, "bench", "--scenario", str(file))
    assert [row["bytes"] for row in result["rows"]] == [4096, 65536]
    for row in result["rows"]:
        assert row["wrong"] == 0
        assert row["busbw_bps"] == pytest.approx(row["algbw_bps"])  # 2(n-1)/n of two ranks
        assert row["limit_bps"] > 0
    assert [len(row["times_us"]) for row in result["baselines"]["ring"]["rows"]] == [4, 4]
    records = Records(tmp_path / "out" / "1" / "records").of(scenario.key)
    assert [record.contender for record in records] == ["both", "ring"] * 2
