# SPDX-License-Identifier: Apache-2.0
"""Records as one flat table, for analysis with pandas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.experiments.errors import OptionError
from railweave.experiments.records import OK, Record, Records, Sample, counted

if TYPE_CHECKING:
    from os import PathLike

    import pandas

FILE = "records.jsonl"
# One row per timed call and rail. A call whose contender does not report its rails has one row.
COLUMNS = (
    "scenario",
    "contender",
    "kind",
    "round",
    "control",
    "size_bytes",
    "call",
    "start_s",
    "time_us",
    "rail",
    "bytes",
    "wrong",
    "bottleneck",
    "fault",
    "repaired_s",
    "run",
    "commit",
    "at",
)


def records(out: str | PathLike[str]) -> pandas.DataFrame:
    """Return all timed calls of the good runs below a folder, or in one `records.jsonl`.

    The table has one row per call and rail, in the columns of COLUMNS. Control runs at half the rate have
    `control` set. `wrong` counts the wrong elements of the call's size in this run.

    Raises:
        OptionError: The folder has no records, they have another version, or pandas is not installed.
    """
    try:
        import pandas  # noqa: PLC0415 - optional
    except ImportError:
        raise OptionError(
            "railweave.records without pandas", "pandas", "install it: pip install pandas"
        ) from None

    path = Path(out)
    files = [path] if path.is_file() else sorted({file.resolve() for file in path.rglob(FILE)})
    if not files:
        raise OptionError(f"{path} has no {FILE}", "a folder of a measurement", "correct the folder")
    rows = [
        row
        for file in files
        for record in counted(Records(file).read())
        if record.status == OK
        for row in _rows(record, str(file.parent))
    ]
    return pandas.DataFrame(rows, columns=list(COLUMNS))


def _rows(record: Record, run: str) -> Iterator[dict[str, Any]]:
    common = {
        "scenario": record.name,
        "contender": record.contender,
        "kind": record.kind,
        "round": record.round,
        "control": record.control,
        "bottleneck": record.bottleneck,
        "fault": record.extra.get("fault", ""),
        "repaired_s": record.extra.get("repaired_s"),
        "run": run,
        "commit": record.commit,
        "at": record.at,
    }
    for sample in record.samples:
        for call, time_us in enumerate(sample.times_us):
            start_s = sample.starts_s[call] if sample.starts_s else None
            for rail, size in _rails(record, sample, call).items():
                yield {
                    **common,
                    "size_bytes": sample.size_bytes,
                    "call": call,
                    "start_s": start_s,
                    "time_us": time_us,
                    "rail": rail,
                    "bytes": size,
                    "wrong": sample.wrong,
                }


def _rails(record: Record, sample: Sample, call: int) -> dict[str, float]:
    """Return the bytes of the tensor by rail: of this call, or by the rails' mean shares."""
    size = str(sample.size_bytes)
    carried = record.extra.get("carried", {}).get(size, ())
    if call < len(carried):
        return dict(carried[call])
    shares = record.shares.get(size, {})
    return {rail: share * sample.size_bytes for rail, share in shares.items()} or {"": sample.size_bytes}
