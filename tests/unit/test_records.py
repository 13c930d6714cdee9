# SPDX-License-Identifier: Apache-2.0
"""Records: a run is recorded completely or not at all, and a record of another version is refused."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest

import railweave
from railweave.errors import Unavailable
from railweave.experiments import frame
from railweave.experiments.errors import OptionError
from railweave.experiments.records import FAILED, Cpu, RankResult, Record, Records, Sample

SAMPLE = Sample(4096, (30.0, 10.0, 20.0), 6, 0)
RECORD = Record(
    "key", "small", "ina", "railweave", 0, "ok",
    samples=(SAMPLE,), shares={"4096": {"ina": 1.0}}, cpu=Cpu(1.0, 0.5, 0.0, 1.5, 2, {"hosts": 3.0}),
)  # fmt: skip
STARTED = replace(SAMPLE, starts_s=(0.0, 0.5, 1.0))


@pytest.mark.parametrize(
    "samples",
    [
        (),
        (Sample(4096, (), 0, 0),),
        (SAMPLE, SAMPLE, replace(STARTED, size_bytes=8192, hot=False)),
        (Sample(4096, (10.0,), 1, 0), Sample(4096, (20.0,), 1, 0)),
        (replace(STARTED, carried=({"ina": 1, "tcp": 4095}, {}, {"tcp": 4096})), SAMPLE),
    ],
)
def test_what_is_added_is_read_again(tmp_path: Path, samples: tuple[Sample, ...]) -> None:
    records = Records(tmp_path / "out" / "records")
    assert records.read() == []
    first = replace(RECORD, samples=samples)
    others = [replace(first, round=1), replace(first, rate_factor=0.5), replace(first, scenario="other")]
    for record in (first, *others):
        records.append(record)
    for found in (records, Records(records.path)):
        assert found.read() == [first, *others]
        assert found.of("key") == [first, others[0]]
        assert found.read("other") == [others[2]]


def test_a_sample_has_its_size_and_median() -> None:
    assert RECORD.sample(4096) == SAMPLE
    assert SAMPLE.median_us == 20.0
    assert RECORD.sample(4) is None


def test_a_run_without_metadata_did_not_end(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    for _ in range(12):
        records.append(RECORD)
    (records.path / "3" / "record.json").unlink()
    (records.path / "12" / "record.json").rename(records.path / "12" / "record.new")
    records.append(replace(RECORD, round=1))
    assert records.read() == [RECORD] * 10 + [replace(RECORD, round=1)]
    assert records.ours()
    (records.path / "mine").touch()
    assert not records.ours()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "records.jsonl",
            '{"version": 2, "scenario": "a"}\n',
            "records.jsonl: a record of version 2 or older",
        ),
        ("records/1/record.json", '{"version": 9}', "record.json: a record of version 9: expected version 3"),
        ("records/1/record.json", '{"version": 3, "samples": []}', "no key 'scenario'"),
        ("records/1/record.json", "nothing", "expected a record that railweave has written"),
        ("records/1/calls.csv", "nothing", "expected a record that railweave has written"),
    ],
)
def test_files_of_other_versions_and_of_others_are_refused(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    records = Records(tmp_path / "records")
    records.append(RECORD)
    (tmp_path / name).write_text(text)
    with pytest.raises(OptionError, match=words):
        records.read()
    pytest.importorskip("pandas", reason="needs pandas")
    with pytest.raises(OptionError, match=words):
        railweave.records(tmp_path)


def test_a_full_disk_leaves_whole_records(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    records.append(RECORD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (10, 200):  # for a part of the table, or of the metadata
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            with pytest.raises(Unavailable, match=r"records/\d: File too large; earlier runs are kept"):
                records.append(RECORD)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert records.read() == [RECORD]
    records.append(RECORD)
    assert records.read() == [RECORD, RECORD]


def test_a_rank_s_result_is_a_file(tmp_path: Path) -> None:
    result = RankResult((SAMPLE,), {"4096": {"ina": 10}}, extra={"subflows": 2})
    result.write(tmp_path / "rank-0.json")
    assert RankResult.read(tmp_path / "rank-0.json") == result


# ------------------------------------------------------------ as a table


def test_records_are_a_flat_table(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    folder = tmp_path / "out" / "1"
    sample = Sample(4096, (10.0, 20.0), 4, 3, starts_s=(0.5, 0.75))
    whole = replace(RECORD, samples=(sample,), shares={"4096": {"ina": 0.75, "tcp": 0.25}})
    counted = replace(sample, carried=({"tcp": 4096}, {"ina": 1024, "tcp": 3072}))
    fault = {"fault": "cut", "repaired_s": 0.8}
    records = Records(folder / "records")
    records.append(whole)
    records.append(replace(whole, round=1, status=FAILED))
    records.append(replace(whole, round=2, samples=(counted,), extra=fault))
    records.append(replace(whole, round=3, shares={}))

    table = railweave.records(tmp_path / "out")
    assert tuple(table.columns) == frame.COLUMNS
    rows = table[["round", "call", "rail", "bytes", "time_us", "start_s"]].values.tolist()
    assert rows == [
        [0, 0, "ina", 3072, 10, 0.5],
        [0, 0, "tcp", 1024, 10, 0.5],
        [0, 1, "ina", 3072, 20, 0.75],
        [0, 1, "tcp", 1024, 20, 0.75],
        [2, 0, "tcp", 4096, 10, 0.5],
        [2, 1, "ina", 1024, 20, 0.75],
        [2, 1, "tcp", 3072, 20, 0.75],
        [3, 0, "", 4096, 10, 0.5],
        [3, 1, "", 4096, 20, 0.75],
    ]
    assert set(table["wrong"]) == {3}
    assert set(table["run"]) == {str(folder)}
    assert table[table["round"] == 2]["repaired_s"].unique().tolist() == [0.8]
    assert len(railweave.records(folder / "records" / "4")) == 2


def test_runs_that_all_failed_are_an_empty_table(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    Records(tmp_path / "records").append(replace(RECORD, status=FAILED, samples=()))
    table = railweave.records(tmp_path)
    assert (tuple(table.columns), len(table)) == (frame.COLUMNS, 0)


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    with pytest.raises(OptionError, match=r"has no record\.json: expected"):
        railweave.records(tmp_path)
