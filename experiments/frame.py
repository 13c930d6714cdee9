# SPDX-License-Identifier: Apache-2.0
"""Records as one flat table, for analysis with pandas."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from railweave.experiments.errors import OptionError
from railweave.experiments.records import COLUMNS as CALL_COLUMNS
from railweave.experiments.records import OK, OLD_FILE, RECORD, Record, read, require_current

if TYPE_CHECKING:
    from os import PathLike

    import pandas

# One row per timed call and rail. A call whose contender does not report its rails has one row.
COLUMNS = (
    *("scenario", "contender", "kind", "round", "control", *CALL_COLUMNS),
    *("wrong", "bottleneck", "fault", "repaired_s", "run", "commit", "at"),
)
# Fields of Record that are the same for all calls of a run.
FIELDS = ("contender", "kind", "round", "control", "bottleneck", "commit", "at")


def records(out: str | PathLike[str]) -> pandas.DataFrame:
    """Return all timed calls of the good runs below a folder.

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
    for old in path.rglob(OLD_FILE):
        require_current(old)
    runs = {file.parent.resolve() for file in path.rglob(RECORD)}
    if not runs:
        raise OptionError(f"{path} has no {RECORD}", "a folder of a measurement", "correct the folder")
    # In the order of the numbers that are the names of folders.
    found = {run: read(run) for run in sorted(runs, key=lambda run: (run.parent, len(run.name), run.name))}
    tables = [
        pandas.DataFrame(record.rows(sample), columns=list(CALL_COLUMNS))
        .astype({"start_s": float})
        .assign(**_constant(record), wrong=sample.wrong, run=str(run.parent.parent))
        for run, record in found.items()
        if record.status == OK
        for sample in record.samples
    ]
    every = pandas.concat(tables, ignore_index=True) if tables else pandas.DataFrame(columns=list(COLUMNS))
    return every[list(COLUMNS)]


def _constant(record: Record) -> dict[str, object]:
    """Return the columns that are the same for all calls of a run."""
    return {
        **{name: getattr(record, name) for name in FIELDS},
        "scenario": record.name,
        "fault": record.extra.get("fault", ""),
        "repaired_s": record.extra.get("repaired_s", math.nan),
    }
