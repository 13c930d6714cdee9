# SPDX-License-Identifier: Apache-2.0
"""Records: a line is complete or absent, and a record of another version is refused."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest

import railweave
from railweave.errors import Unavailable
from railweave.experiments import frame
from railweave.experiments.errors import OptionError
from railweave.experiments.records import FAILED, Cpu, RankResult, Record, Records, Sample

SAMPLE = Sample(4096, (30.0, 10.0, 20.0), ((30.0, 9.0, 20.0), (1.0, 10.0, 2.0)), 6, 0)
RECORD = Record(
    "key", "small", "ina", "railweave", 0, "ok",
    samples=(SAMPLE,), shares={"4096": {"ina": 1.0}}, cpu=Cpu(1.0, 0.5, 0.0, 1.5, 2, {"hosts": 3.0}),
)  # fmt: skip


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    file = Records(tmp_path / "out" / "records.jsonl")
    assert file.read() == []
    others = [replace(RECORD, round=1), replace(RECORD, rate_factor=0.5), replace(RECORD, scenario="other")]
    for record in (RECORD, *others):
        file.append(record)
    assert file.read() == [RECORD, *others]
    assert file.of("key") == [RECORD, others[0]]
    assert file.read("other") == [others[2]]
    assert file.read()[0].samples[0].median_us == 20.0
    assert file.read()[0].sample(4) is None


def test_a_line_that_was_not_finished_is_replaced(tmp_path: Path) -> None:
    file = Records(tmp_path / "records.jsonl")
    file.append(RECORD)
    with file.path.open("a") as torn:
        torn.write(RECORD.line()[:40])
    assert file.read() == [RECORD]
    file.append(RECORD)
    assert file.read() == [RECORD, RECORD]


def test_another_version_is_refused_with_its_line(tmp_path: Path) -> None:
    file = Records(tmp_path / "records.jsonl")
    file.path.write_text(RECORD.line() + json.dumps({**json.loads(RECORD.line()), "version": 9}) + "\n")
    with pytest.raises(OptionError, match="line 2: a record of version 9: expected version 2"):
        file.read()
    file.path.write_text('{"version": 2, "speed": 3}\n')
    with pytest.raises(OptionError, match=r"line 1: .*unknown key 'speed'"):
        file.read()
    file.path.write_text("nothing\n")
    with pytest.raises(OptionError, match="line 1 is no record"):
        file.read()


def test_a_full_disk_leaves_whole_records(tmp_path: Path) -> None:
    file = Records(tmp_path / "records.jsonl")
    file.append(RECORD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(RECORD.line()) + 100, limits[1]))  # room for a part
    try:
        with pytest.raises(Unavailable, match=r"records\.jsonl: File too large; earlier runs are kept"):
            file.append(RECORD)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.path.read_text() == RECORD.line()
    file.append(RECORD)
    assert file.read() == [RECORD, RECORD]


def test_a_rank_s_result_is_a_file(tmp_path: Path) -> None:
    result = RankResult((SAMPLE,), {"4096": {"ina": 10}}, extra={"subflows": 2})
    result.write(tmp_path / "rank-0.json")
    assert RankResult.read(tmp_path / "rank-0.json") == result


# ------------------------------------------------------------ as a table


def test_records_are_a_flat_table(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    folder = tmp_path / "out" / "1"
    sample = Sample(4096, (10.0, 20.0), (), 4, 3, starts_s=(0.5, 0.75))
    whole = replace(RECORD, samples=(sample,), shares={"4096": {"ina": 0.75, "tcp": 0.25}}, extra={})
    carried = {
        "carried": {"4096": [{"tcp": 4096}, {"ina": 1024, "tcp": 3072}]},
        "fault": "cut",
        "repaired_s": 0.8,
    }
    file = Records(folder / "records.jsonl")
    file.append(whole)
    file.append(replace(whole, round=whole.round + 1, status=FAILED))
    file.append(replace(whole, round=whole.round + 2, extra=carried))
    file.append(replace(whole, round=whole.round + 3, shares={}))

    table = railweave.records(tmp_path / "out")
    assert tuple(table.columns) == frame.COLUMNS
    rows = table[["round", "call", "rail", "bytes", "time_us", "start_s"]].values.tolist()
    first = whole.round
    assert rows == [
        [first, 0, "ina", 3072, 10, 0.5],
        [first, 0, "tcp", 1024, 10, 0.5],
        [first, 1, "ina", 3072, 20, 0.75],
        [first, 1, "tcp", 1024, 20, 0.75],
        [first + 2, 0, "tcp", 4096, 10, 0.5],
        [first + 2, 1, "ina", 1024, 20, 0.75],
        [first + 2, 1, "tcp", 3072, 20, 0.75],
        [first + 3, 0, "", 4096, 10, 0.5],
        [first + 3, 1, "", 4096, 20, 0.75],
    ]
    assert set(table["wrong"]) == {3}
    assert set(table["run"]) == {str(folder)}
    assert table[table["round"] == first + 2]["repaired_s"].unique().tolist() == [0.8]
    assert len(railweave.records(folder / "records.jsonl")) == len(rows)


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    with pytest.raises(OptionError, match=r"has no records\.jsonl: expected"):
        railweave.records(tmp_path)
