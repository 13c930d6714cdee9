# SPDX-License-Identifier: Apache-2.0
"""The benches, short, in labs: their JSON and pictures, and what they refuse."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from system.command import Command, Start, result_of

from railweave._native import load
from railweave.experiments.failover.kinds import RANK_KILLED
from railweave.experiments.failover.values import PEER_LOST, WENT_ON
from railweave.experiments.receive import own_network
from railweave.switch.targets import TARGETS

PNG = b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("striping", "--parts", "speed"), "part 'speed': expected one of"),
        (("failover", "--rails", "tcp"), "expected a second rail"),
        (("failover", "--plot", "curve.txt"), "expected a name that ends in"),
        (
            ("failover", "--rails", "ina,ina", "--faults", "spine killed"),
            "'spine killed' fits none of the rails: expected two spines",
        ),
        (("failover", "--rails", "tcp,tcp", "--faults", "leaf killed"), "expected an in-network rail"),
        (("switch", "--lanes", "100"), "for 100 lanes: expected one of 32, 64, 256"),
        (("switch", "--vs", "tofino"), "--vs tofino: expected one of"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(start: Start, arguments: tuple[str, ...], words: str) -> None:
    code, complaint = start("bench", *arguments).end()
    assert (code, complaint.count("\n")) == (2, 1)
    assert words in complaint


# ------------------------------------------------------------ jobs, scaling, striping


def test_a_job_without_slots_runs_on_its_other_rails(start: Start, tmp_path: Path) -> None:
    result = result_of(
        *(start, tmp_path, "bench", "jobs", "--jobs", "3", "--hosts", "2", "--rails", "ina,tcp"),
        *("--slots", "4096", "--seconds", "3", "--size", "64K"),
    )
    assert result["ok"]
    full = "no 4096 slots in a row are free on switch s-ina: 2 groups hold 8192"
    (refused,) = (job for job in result["rows"] if full in job["why"].get("ina", ""))
    assert refused["bps"]["ina"] == 0
    assert refused["bps"]["tcp"] > 0


def test_scaling_draws_its_curve(start: Start, tmp_path: Path) -> None:
    curve = tmp_path / "curve.png"
    result = result_of(
        *(start, tmp_path, "bench", "scaling", "--hosts", "2,3", "--iters", "3", "--plot", str(curve))
    )
    (measured,) = result["rows"]
    assert (measured["contender"], measured["bytes"]) == ("ina", 16384)
    assert [point["hosts"] for point in measured["points"]] == [2, 3]
    for point in measured["points"]:
        assert 0 < point["cpu_us_per_call"] < 1e6
        assert 2**20 < point["memory_bytes"] < 2**30
    assert curve.read_bytes().startswith(PNG)


def test_a_split_is_learnt_and_no_number_is_wrong(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    code, complaint = start(
        *("bench", "striping", "--parts", "convergence", "--hosts", "2", "--sizes", "256K"),
        *("--plot", str(tmp_path / "s.png"), "--json", str(path)),
    ).end()
    assert code in (0, 1), complaint  # 1: on a busy machine a claim may fail
    result = json.loads(path.read_text())
    assert (result["ok"], result["wrong"]) == (True, 0)
    for trace in result["rows"]:
        assert len(trace["phases"]) == 3
        assert len(trace["shares"]) == sum(phase["calls"] for phase in trace["phases"])
        assert all(phase["calls"] > 0 for phase in trace["phases"])
        assert all(0 <= phase["final_share"] <= 1 for phase in trace["phases"])  # which, the machine decides
    assert (tmp_path / "s-convergence.png").read_bytes().startswith(PNG)


# ------------------------------------------------------------ faults


def test_a_rail_fails_and_comes_back_and_no_number_is_wrong(start: Start, tmp_path: Path) -> None:
    picture = tmp_path / "r.png"
    result = result_of(
        *(start, tmp_path, "bench", "failover", "--hosts", "2", "--rails", "tcp,tcp", "--hit", "tcp1"),
        *(
            "--rate",
            "50M",
            "--faults",
            "switch port down,rank killed",
            "--repeat",
            "1",
            "--plot",
            str(picture),
        ),
    )
    assert set(result) == {"ok", "command", "versions", "seed", "rows"}
    fault, killed = result["rows"]
    fields = {"fault", "rail", "fault_ms", "pause_ms", "reroute_ms", "readmit_ms", "wrong", "errors"}
    assert fields <= fault.keys() & killed.keys()
    assert (fault["fault"], fault["rail"]) == ("switch port down", "tcp1")
    assert (fault["wrong"], fault["errors"], fault["outcomes"]) == (0, 0, {"went on": 1})
    assert (fault["unused"], fault["rerouted"], fault["failures"]) == (0, 1, 1)
    assert fault["readmit_ms"] > 0
    assert killed["outcomes"] == {"PeerLost": 1}
    assert picture.read_bytes().startswith(PNG)


def test_every_death_ends_as_expected_and_no_number_is_wrong(start: Start, tmp_path: Path) -> None:
    faults = ["leaf killed", "spine killed", "controller restarts", RANK_KILLED.name]
    result = result_of(
        *(start, tmp_path, "bench", "failover", "--topology", "leaf-spine:racks=2,hosts=1,spines=2"),
        *("--rails", "ina", "--rate", "20M", "--faults", ",".join(faults), "--repeat", "1", "--size", "64K"),
        *("--restarts", "3"),
    )
    assert [row["fault"] for row in result["rows"]] == faults
    for row in result["rows"]:
        assert row["wrong"] == 0
        assert row["outcomes"] == {PEER_LOST if row["fault"] == RANK_KILLED.name else WENT_ON: 1}
        assert row["errors"] == 0
    assert result["rows"][-1]["formed_max_ms"] > 0


SEED = "144"  # its first faults come in the third second, on either rail
SOAK = ("bench", "soak", "--hosts", "2", "--rails", "tcp,tcp", "--largest", "20000")


def test_calls_of_all_sorts_are_exact_while_rails_fail(start: Start, tmp_path: Path) -> None:
    result = result_of(start, tmp_path, *SOAK, "--seconds", "7.2", "--seed", SEED)
    assert (result["wrong"], result["errors"]) == (0, 0)
    assert result["calls"] > 0
    assert result["faults"] > 0
    record = [json.loads(line) for line in (tmp_path / "out" / "1" / "soak.jsonl").read_text().splitlines()]
    assert record[-1]["event"] == "summary"
    assert sum(line["event"] == "fault" for line in record) == result["faults"]


def test_ctrl_c_tells_what_has_come_so_far(start: Start, tmp_path: Path) -> None:
    command = start(*SOAK, "--seconds", "3600", "--no-faults")
    command.until_progress("all ranks call")
    command.process.send_signal(signal.SIGINT)
    assert "calls of each rank" in command.until("calls of each rank")
    assert command.end()[0] == 130
    assert not command.records
    last = (tmp_path / "out" / "1" / "soak.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["event"] == "summary"


# ------------------------------------------------------------ the switch


def test_the_embedded_switch_is_measured(start: Start, tmp_path: Path) -> None:
    result = result_of(
        *(start, tmp_path, "bench", "switch", "--lanes", "64", "--workers", "3", "--seconds", "0.2")
    )
    assert (result["lanes"], result["workers"]) == (64, 3)
    assert set(result["engine_ns_per_packet"]) == {"interpreted", "compiled"}
    assert all(ns > 0 for times in result["engine_ns_per_packet"].values() for ns in times.values())
    assert result["pps"]["embedded"] > 0
    assert (result["pps"]["bmv2"], result["ratio"]) == (None, None)


def test_that_bmv2_is_missing_is_said(start: Start, tmp_path: Path) -> None:
    if TARGETS["bmv2"].missing() is None:
        pytest.skip("BMv2 is installed here")
    result = result_of(start, tmp_path, "bench", "switch", "--seconds", "0.2", "--vs", "bmv2")
    assert result["pps"]["bmv2"] is None
    assert "simple_switch_grpc is not on PATH" in result["missing"]


def test_the_embedded_switch_is_compared_with_bmv2(start: Start, tmp_path: Path) -> None:
    if missing := TARGETS["bmv2"].missing():
        pytest.skip(missing)
    result = result_of(
        *(start, tmp_path, "bench", "switch", "--lanes", "64", "--seconds", "0.3", "--vs", "bmv2")
    )
    assert result["ratio"] == pytest.approx(result["pps"]["embedded"] / result["pps"]["bmv2"], rel=0.1)


# ------------------------------------------------------------ the controller


def test_the_controller_is_measured_on_a_fat_tree(start: Start, tmp_path: Path) -> None:
    result = result_of(*(start, tmp_path, "bench", "controller", "--k", "4", "--jobs", "3", "--ranks", "4"))
    (row,) = result["rows"]
    assert (row["k"], row["hosts"], row["switches"]) == (4, 16, 20)
    assert row["admit_updates"] > 0
    assert row["moved_trees"] > 0
    assert 0 < row["paused_s"] < row["move_s"]
    assert row["full_bytes"] > 0


def test_a_job_larger_than_the_network_is_refused(start: Start) -> None:
    command = start("bench", "controller", "--k", "4", "--ranks", "17")
    code, complaint = command.end()
    assert code == 2
    assert "--ranks 17: expected 2 to 16, the hosts of k=4" in complaint


# ------------------------------------------------------------ the receive path


def test_receiving_is_measured_on_every_way(tmp_path: Path) -> None:
    def start(*arguments: str) -> Command:
        return Command(arguments)  # it makes no lab, and has no folder for logs

    result = result_of(start, tmp_path, "bench", "receive", "--mtu", "1500,9000", "--seconds", "0.05")
    assert result["ok"]
    assert (result["missing"] is None) == (own_network.missing() == "")
    ways = ("memory", "super-packets", "packets")[: 1 if result["missing"] else 3]
    shapes = [("spread", 1440), ("spread", 8940), ("result", 1456), ("result", 8192)]
    assert [(row["way"], row["kind"], row["payload"]) for row in result["rows"]] == [
        (way, *shape) for way in ways for shape in shapes
    ]
    assert all(row["pps"] > 0 for row in result["rows"])
    mtus = (1500, 9000) if len(os.sched_getaffinity(0)) > 1 else ()
    assert [(pair["way"], pair["kind"], pair["mtu"]) for pair in result["pairs"]] == [
        (way, kind, mtu) for way in ways for kind in ("spread", "result") for mtu in mtus
    ]
    assert all(pair["one_ns"] > 0 < pair["two_ns"] for pair in result["pairs"])


def test_the_receiving_cpu_does_the_kernels_part_as_well() -> None:
    if missing := own_network.missing():
        pytest.skip(missing)
    sending, *_, receiving = sorted(os.sched_getaffinity(0))

    def packets_by_cpu() -> list[int]:
        lines = Path("/proc/net/softnet_stat").read_text().splitlines()
        return [int(line.split()[0], 16) for line in lines]

    def call() -> tuple[int, int, int]:
        before = packets_by_cpu()
        reading = load.receive_from_kernel("spread", 1456, 0.05, super_packets=False, send_on=sending)
        assert os.sched_getaffinity(0) == {receiving}
        return reading["packets"], packets_by_cpu()[receiving], before[receiving]

    here = Path("/proc/self/ns/net").readlink()
    packets, after, before = own_network.run(receiving, call)
    assert after - before >= packets > 0
    assert Path("/proc/thread-self/ns/net").readlink() == here
