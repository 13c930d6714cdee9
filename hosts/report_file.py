# SPDX-License-Identifier: Apache-2.0
"""A file in which a rank leaves what it did, for whoever started it: one JSON object per line.

`joined` when it is connected with all others; at its end `left`, with its slices and the rails' counts (as
`reports.Record` and `reports.RailReport`). Each has `rank` and `at`; times are seconds of CLOCK_MONOTONIC,
which all processes of a machine share.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from railweave.hosts.errors import InvalidOption
from railweave.hosts.reports import Reporter


class ReportFile:
    """The report of one rank."""

    def __init__(self, path: str, rank: int) -> None:
        """Write that the rank has joined; InvalidOption if the file cannot be written."""
        self._path = path
        self._rank = rank
        try:
            self._write("joined")
        except OSError as error:
            raise InvalidOption(f"report {path!r} cannot be written: {error.strerror}") from error

    def close(self, reporter: Reporter) -> None:
        """Write what the rank did, as far as the program has not drained its slices."""
        self._write(
            "left",
            slices=[asdict(record) for record in reporter.drain_records()],
            rails=[asdict(rail) for rail in reporter.stats().rails],
        )

    def _write(self, event: str, **values: Any) -> None:
        line = {"event": event, "rank": self._rank, "at": time.monotonic(), **values}
        with open(self._path, "a") as file:  # noqa: PTH123
            file.write(json.dumps(line) + "\n")
