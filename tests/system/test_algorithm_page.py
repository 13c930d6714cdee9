# SPDX-License-Identifier: Apache-2.0
"""The how-to on algorithms: its files are those of `mink`, and its commands run, also in a lab."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from commands import railweave

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "algorithm.md").read_text()
MINK = ROOT / "algorithms" / "mink"
FILES = dict(re.findall(r'^```\w+ title="mink/([\w.]+)"\n(.*?)^```$', PAGE, re.S | re.M))


def test_the_page_builds_mink(tmp_path: Path) -> None:
    assert FILES.keys() == {path.name for path in MINK.iterdir() if path.is_file()}
    made = tmp_path / "mink"
    railweave("algorithm", "new", made)
    assert {path.name for path in made.iterdir()} == {*FILES, "build"}
    for name, text in FILES.items():
        assert text == (MINK / name).read_text(), f"the page shows another {name}"
        (made / name).write_text(text)
    shutil.copytree(MINK / "build", made / "build", dirs_exist_ok=True)  # in place of p4c
    done = railweave("algorithm", "check", made, "--schedules", "50", "--lab", "--out", tmp_path / "out")
    assert "older than its sources" not in done.stderr
    assert re.search(r"^ all +50 +0", done.stdout, re.M), done.stdout
    assert re.search(r"^lab with loss of 1 %: 150 right results on 3 hosts", done.stdout, re.M), done.stdout
