# SPDX-License-Identifier: Apache-2.0
"""The notebook in docs/howto runs on the records of the commands that it names."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from commands import ROOT, railweave

pytest.importorskip("pandas", reason="needs pandas")

NOTEBOOK = ROOT / "docs" / "howto" / "records.ipynb"
SHORTER = {"all-reduce": "--hosts 2 --iters 2 --sizes 4K,64K", "failover": "--hosts 2 --repeat 1"}
RAILS = {"ina", "tcp"}


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_the_notebook_draws_a_sweep_and_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in cells("markdown")[0].splitlines():
        if line.startswith("    railweave "):
            _, bench, command, *options = shlex.split(line)
            shorter = SHORTER[command].split()
            railweave(bench, command, *options, *shorter)

    mpl.use("Agg")
    names: dict[str, object] = {}
    for code_cell in cells("code"):
        exec(compile(code_cell, NOTEBOOK.name, "exec"), names)  # noqa: S102 - our own
    sweep, fault = (plt.figure(number).axes[0] for number in plt.get_fignums()[-2:])
    assert {line.get_label() for line in sweep.lines} == {"ina+tcp", *RAILS}
    assert all(time > 0 for line in sweep.lines for time in line.get_ydata())
    by_rail = {line.get_label(): dict(line.get_xydata()) for line in fault.lines}
    assert set(by_rail) == RAILS
    during = [bin_s for bin_s in by_rail["ina"] if 0.3 < bin_s < 0.7]
    assert during
    assert all(by_rail["ina"][bin_s] == 0 < by_rail["tcp"][bin_s] for bin_s in during)
    before = [by_rail["ina"][bin_s] for bin_s in by_rail["ina"] if bin_s < -0.1]
    assert sum(before) > 0


def test_the_page_shows_the_notebooks_code() -> None:
    page = (ROOT / "docs" / "howto" / "data.md").read_text()
    shown = page[page.index("```python\n") + len("```python\n") :].partition("```")[0]
    assert "".join(shown.split()) == "".join("".join(cells("code")).split())


@pytest.fixture(autouse=True)
def _close_figures() -> object:
    yield
    plt.close("all")
