# SPDX-License-Identifier: Apache-2.0
"""The table of times in docs/design/recovery.md matches the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MILLISECONDS = {"kMillisecond": 1, "kSecond": 1000}
CONSTANT = re.compile(r"constexpr Duration (k\w+) =\s*(?:(\d+) \* )?(kMillisecond|kSecond)(?: / (\d+))?;")


def test_the_table_of_times_is_the_codes() -> None:
    header = (ROOT / "native/core/timing.hpp").read_text()
    code = {
        name: int(factor or 1) * MILLISECONDS[unit] // int(divisor or 1)
        for name, factor, unit, divisor in CONSTANT.findall(header)
    }
    docs = (ROOT / "docs/design/recovery.md").read_text()
    table = {name: int(value) for name, value in re.findall(r"^\| (k\w+) \| (\d+) \|", docs, re.MULTILINE)}
    assert len(code) > 10
    assert table == code
