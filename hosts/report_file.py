# SPDX-License-Identifier: Apache-2.0
"""The report of a rank for the process that started it: a file with one JSON object per line.

A rank writes `joined` when it is connected with all other ranks. At its end it writes `left`, with its
slices (`reports.Record`), the rails' counts (`reports.RailReport`) and its ports by rail. A rank that joins
again, or splits its communicator, adds such lines for each communicator. Each line has `rank` and `at`.
Times are seconds of CLOCK_MONOTONIC, which all processes of a machine share. On request, a second file has
the rails' counts while the rank runs. The rank replaces that file periodically.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from railweave.hosts.errors import InvalidOption
from railweave.hosts.reports import Reporter

log = logging.getLogger(__name__)


def latest_of(report: Path) -> Path:
    """Return the path of a running rank's counts: one line `running` with `rank`, `at` and `rails`."""
    return report.with_name(report.name + ".now")


class ReportFile:
    """The report of one rank."""

    def __init__(self, path: str, rank: int, reporter: Reporter, every_s: float = 0.0) -> None:
        """Write that the rank has joined, and its counts every `every_s` seconds; 0: at its end only.

        InvalidOption if the file cannot be written.
        """
        self._path = Path(path)
        self._rank = rank
        self._reporter = reporter
        self._closed = threading.Event()
        try:
            with self._path.open("a") as file:
                file.write(self._line("joined"))
        except OSError as error:
            raise InvalidOption(
                f"report {path!r}: {error.strerror}",
                "a file that can be written",
                "correct its mode, or name another one",
            ) from error
        self._thread: threading.Thread | None = None
        if every_s:
            self._thread = threading.Thread(
                target=self._refresh, args=(every_s,), name="railweave report", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Write the rank's counts, and the slices that the program has not drained."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        slices = [asdict(record) for record in self._reporter.drain_records()]
        with self._path.open("a") as file:
            ports = self._reporter.ports()
            file.write(self._line("left", slices=slices, rails=self._rails(), ports=ports))

    def _refresh(self, every_s: float) -> None:
        latest = latest_of(self._path)
        new = latest.with_suffix(".new")
        try:
            while not self._closed.wait(every_s):
                new.write_text(self._line("running", rails=self._rails()))
                new.replace(latest)
        except OSError as error:  # such as a full disk: end this report, not the job
            log.warning("%s is not written any more: %s", latest, error.strerror)
        with contextlib.suppress(OSError):
            latest.unlink()

    def _rails(self) -> list[dict[str, Any]]:
        return [asdict(rail) for rail in self._reporter.stats().rails]

    def _line(self, event: str, **values: Any) -> str:
        return json.dumps({"event": event, "rank": self._rank, "at": time.monotonic(), **values}) + "\n"
