# SPDX-License-Identifier: Apache-2.0
"""Short runs of the benches in labs: their JSON and pictures."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from system.command import Start, result_of

from railweave._native import load
from railweave.benchmarks import namespaces
from railweave.benchmarks.programs import PROGRAMS
from railweave.benchmarks.switch_pauses import REQUESTS
from railweave.experiments.failover.values import PEER_LOST, WENT_ON
from railweave.experiments.fault_kinds import RANK_KILLED
from railweave.experiments.figures import modules
from railweave.experiments.striping import parts
from railweave.switch.targets import TARGETS

PNG = b"\x89PNG"


# ------------------------------------------------------------ jobs, scaling, striping


def test_a_job_without_slots_runs_on_its_other_rails(start: Start, tmp_path: Path) -> None:
    result = result_of(
        *(start, tmp_path, "bench", "jobs", "--jobs", "3", "--hosts", "2", "--rails", "ina,tcp"),
        *("--slots", "4096", "--seconds", "3", "--size", "64K"),
    )
    assert result["ok"]
    full = "no 4096 slots in a row are free on switch s-ina, where 2 groups hold 8192"
    (refused,) = (job for job in result["rows"] if full in job["why"].get("ina", ""))
    assert refused["bps"]["ina"] == 0
    assert refused["bps"]["tcp"] > 0


async def test_jobs_of_atp_share_the_slots_of_a_switch_and_end_when_they_are_told(tmp_path: Path) -> None:
    topology = "racks:racks=2,hosts=2,ina=2"
    options = {"kind": "best effort", "jobs": 2, "topology": topology, "rate_bps": 20_000_000}
    measure = modules.load("jobs_on_slots", tmp_path, "measure")
    (found,) = await measure({**options, "bytes": 65536, "seconds": 3}, tmp_path, lambda _: None)
    assert found["wrong"] == 0
    assert found["least_mbps"] > 0
    assert found["counted"]["result"] > 0


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


def test_a_split_is_learnt_and_no_number_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEAST_PHASE_S", 0.0)
    options = f"--hosts 2 --sizes 256K --out {tmp_path}/out --plot {tmp_path}/s.png --json {tmp_path}/r.json"
    done = invoke(f"bench striping --parts convergence {options}")
    assert done.exit_code in (0, 1), done.output  # 1: on a busy machine a claim may fail
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["ok"], result["wrong"]) == (True, 0)
    for trace in result["rows"]:
        assert len(trace["phases"]) == 3
        assert len(trace["shares"]) == sum(phase["calls"] for phase in trace["phases"])
        assert all(phase["calls"] > 0 for phase in trace["phases"])
        assert all(0 <= phase["final_share"] <= 1 for phase in trace["phases"])  # any valid share
    assert (tmp_path / "s-convergence.png").read_bytes().startswith(PNG)


# ------------------------------------------------------------ faults


def test_a_rail_fails_and_comes_back_and_no_number_is_wrong(start: Start, tmp_path: Path) -> None:
    picture = tmp_path / "r.png"
    result = result_of(
        *(start, tmp_path, "bench", "failover", "--hosts", "2", "--rails", "tcp,tcp", "--hit", "tcp1"),
        *("--rate", "50M", "--faults", "switch port down", "--repeat", "1", "--plot", str(picture)),
    )
    assert set(result) == {"ok", "command", "versions", "seed", "rows"}
    (fault,) = result["rows"]
    fields = {"fault", "rail", "fault_ms", "pause_ms", "reroute_ms", "readmit_ms", "wrong", "errors"}
    assert fields <= fault.keys()
    assert (fault["fault"], fault["rail"]) == ("switch port down", "tcp1")
    assert (fault["wrong"], fault["errors"], fault["outcomes"]) == (0, 0, {"went on": 1})
    assert (fault["unused"], fault["rerouted"], fault["failures"]) == (0, 1, 1)
    assert fault["readmit_ms"] > 0
    assert picture.read_bytes().startswith(PNG)


def test_every_death_ends_as_expected_and_no_number_is_wrong(start: Start, tmp_path: Path) -> None:
    """`test_moves.py` checks sums while other parts of such a tree die."""
    faults = ["spine killed", "controller restarts", RANK_KILLED.name]
    result = result_of(
        *(start, tmp_path, "bench", "failover", "--topology", "leaf-spine:racks=2,hosts=1,spines=2"),
        *("--rails", "ina", "--rate", "20M", "--faults", ",".join(faults), "--repeat", "1", "--size", "64K"),
        *("--restarts", "2"),
    )
    assert [row["fault"] for row in result["rows"]] == faults
    for row in result["rows"]:
        assert row["wrong"] == 0
        assert row["outcomes"] == {PEER_LOST if row["fault"] == RANK_KILLED.name else WENT_ON: 1}
        assert row["errors"] == 0
    assert result["rows"][-1]["formed_max_ms"] > 0


SEED = "144"  # with this seed both rails have their first fault in the third second
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


SHORT = ("--seconds", "0.1", "--repeat", "1")


def values(result: dict[str, Any], table: str, **parameters: object) -> dict[str, float]:
    """Return the numbers of one line of a table, by name."""
    wanted = {"table": table, **parameters}
    return {row["name"]: row["value"] for row in result["rows"] if wanted.items() <= row.items()}


def test_the_embedded_switch_is_measured_and_compared(start: Start, tmp_path: Path) -> None:
    """A target that is absent is named."""
    options = ("--lanes", "64", "--hosts", "3", *SHORT, "--compare", "echo,bmv2")
    result = result_of(start, tmp_path, "bench", "switch", *options)
    for engine in ("interpreted", "compiled"):
        assert min(values(result, "engine", engine=engine, lanes=64, hosts=3).values()) > 0
    ours, echo, bmv2 = (
        values(result, "load", target=name, lanes=64, hosts=3) for name in ("embedded", "echo", "bmv2")
    )
    assert values(result, "windows", window=ours["window"], target="embedded")["sums"] > 0
    present = [echo, bmv2] if TARGETS["bmv2"].missing() is None else [echo]
    for other in present:
        assert other["embedded is"] == pytest.approx(ours["sums"] / other["sums"])
    assert bmv2 in present or "simple_switch_grpc is not on PATH" in result["missing"][0]
    assert json.loads((tmp_path / "out" / "1" / "result.json").read_text()) == result


def test_common_programs_are_measured_alone_and_with_io(start: Start, tmp_path: Path) -> None:
    result = result_of(start, tmp_path, "bench", "switch", "--parts", "programs", *SHORT, "--compare", "bmv2")
    targets = [name for name, target in TARGETS.items() if target.missing() is None]
    for program in PROGRAMS:
        for engine in ("interpreted", "compiled"):
            row = values(result, "programs alone", program=program.title, engine=engine)
            assert row["rate"] == pytest.approx(1e3 / row["packet"])
            assert row["NIKSS"] == program.published_mpps
        for target in targets:
            assert values(result, "programs with I/O", program=program.title, target=target)["rate"] > 0
    assert ("bmv2" in targets) == (result["missing"] == [])


def test_the_pauses_of_each_kind_of_request_are_measured(start: Start, tmp_path: Path) -> None:
    result = result_of(start, tmp_path, "bench", "switch", "--parts", "pauses", *SHORT)
    for request in REQUESTS:
        found = values(result, "pauses", requests=request)
        assert 0 < found["packet"] <= found["longest packet"]
        assert 0 < found["answer"] <= found["longest answer"]


# ------------------------------------------------------------ the controller


def test_the_controller_is_measured_on_a_fat_tree(start: Start, tmp_path: Path) -> None:
    options = ("--k", "4", "--jobs", "3", "--ranks", "4", "--repeat", "1")
    result = result_of(start, tmp_path, "bench", "controller", *options)
    network = values(result, "network", k=4, hosts=16, switches=20)
    assert network["with all jobs"] > 0
    admission = values(result, "admission", jobs=3, ranks=4)
    assert admission["updates"] > 0
    assert 0 < admission["admitted"] <= admission["p99"]
    death = values(result, "death", k=4)
    assert death["trees"] > 0
    assert 0 < death["first pause"] < death["all moved"]


# ------------------------------------------------------------ the receive path


def test_receiving_is_measured_from_every_source(start: Start, tmp_path: Path) -> None:
    options = ("--mtu", "1500,9000", "--seconds", "0.01", "--repeat", "1")
    result = result_of(start, tmp_path, "bench", "receive", *options)
    kernel = not namespaces.missing()
    assert (result["missing"] == []) == kernel
    sources = ("memory", "super-packets", "packets")[: 3 if kernel else 1]
    for source in sources:
        for kind, mtu, payload in (("spread", 9000, 8940), ("result", 1500, 1456)):
            row = {"from": source, "kind": kind, "mtu": mtu}
            assert values(result, "receive", payload=payload, **row)["packet"] > 0
            pair = values(result, "workers", **row)
            assert not pair or pair["gain"] > 0
    for packets in ("sealed", "plain"):
        row = {"lanes": 256, "packets": packets, "dtype": "int32", "op": "avg"}
        assert values(result, "endpoint", **row)["core"] > 0
    assert all(row["low"] <= row["value"] <= row["high"] for row in result["rows"])


def test_the_receiving_cpu_does_the_kernels_part_as_well() -> None:
    if missing := namespaces.missing():
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
    packets, after, before = namespaces.on_own_loopback(receiving, call)
    assert after - before >= packets > 0
    assert Path("/proc/thread-self/ns/net").readlink() == here
