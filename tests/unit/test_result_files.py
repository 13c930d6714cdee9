# SPDX-License-Identifier: Apache-2.0
"""Every benchmark's JSON begins with the same keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from railweave.benchmarks.harness import Benchmark, Result
from railweave.commands import common
from railweave.experiments.cpu import CpuTimes
from railweave.experiments.failover.report import as_json as failover_json
from railweave.experiments.failover.run import FailoverResult
from railweave.experiments.failover.values import FailoverOptions
from railweave.experiments.loss.run import as_json as loss_json
from railweave.experiments.scaling.run import as_json as scaling_json
from railweave.experiments.soak.tally import Tally
from railweave.experiments.striping.run import as_json as striping_json
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

HEAD = {"ok", "command", "versions", "seed"}


def test_a_result_says_how_it_came_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/railweave", "bench", "loss", "--topology", "a b"])
    common.write_result({"ok": False, "rows": [1]}, tmp_path / "r.json", seed=7, versions={"gloo": "2"})
    told = json.loads((tmp_path / "r.json").read_text())
    assert told.keys() == HEAD | {"rows"}
    assert (told["ok"], told["seed"], told["rows"]) == (False, 7, [1])
    assert told["command"] == "railweave bench loss --topology 'a b'"
    assert {"railweave", "numpy", "python", "linux", "gloo"} == told["versions"].keys()


def test_every_benchmark_has_ok_and_rows() -> None:
    failover = FailoverResult(FailoverOptions(planes(2, ("tcp",)), LabOptions(Path("out"))), [])
    for told in (
        failover_json(failover),
        loss_json([]),
        Result(Benchmark("none", {}), (), CpuTimes()).as_json(),
        scaling_json([]),
        striping_json([]),
        Tally().summary(),
    ):
        assert (told["ok"], told["rows"]) == (True, [])
