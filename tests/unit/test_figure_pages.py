# SPDX-License-Identifier: Apache-2.0
"""The reference run, its plots, and the pages that show them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import model_records
import pytest

from railweave.experiments import publish, reproduce
from railweave.experiments.claims import NOT_MEASURED, REPRODUCED
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import figures, publications
from railweave.experiments.publish import FOLDER, PLOTS, FigureRun, Reference, Result
from railweave.experiments.records import Records

MOST_SVG_BYTES = 60_000
FIGURES = {figure.name: figure for figure in figures()}


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figure_pages", FOLDER.parent / "figure_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str, reference: Reference) -> str:
    (paper,) = [each for each in publications() if FIGURES[name] in each.figures]
    return "\n".join(hook().page(FIGURES[name], paper, reference))


def record(out: Path, *names: str, quick: bool) -> None:
    """Record runs of figures with the results of the cost model."""
    model_records.record(reproduce.Options(figures(names), out, quick))


# ------------------------------------------------------------ the committed files


def test_the_committed_reference_run_belongs_to_the_figures() -> None:
    reference = Reference.load()
    assert set(reference.figures) <= set(FIGURES)
    for name, run in reference.figures.items():
        assert set(run.claims) <= {claim.id for claim in FIGURES[name].claims}, name
    plots = {path.stem: path for path in (FOLDER / PLOTS).iterdir()}
    assert set(plots) == set(reference.figures)
    assert {
        name: size for name, path in plots.items() if (size := path.stat().st_size) > MOST_SVG_BYTES
    } == {}


def test_every_figure_belongs_to_one_paper() -> None:
    assert sorted(FIGURES) == sorted(figure.name for paper in publications() for figure in paper.figures)


@pytest.mark.parametrize("name", FIGURES)
def test_texts_of_a_figure(name: str) -> None:
    figure = FIGURES[name]
    assert not figure.text.startswith("#"), "the page begins with the figure's title"
    for claim in figure.claims:
        assert re.search(r"\bx\b", claim.text), f"{claim.id} does not say what its number x is"
        assert re.search(r"[.)]$", claim.text), claim.id


# ------------------------------------------------------------ publishing


def test_a_folder_of_reproduce_is_published(tmp_path: Path) -> None:
    out, to = tmp_path / "out", tmp_path / "site"
    for folder in (out, to, to / PLOTS):
        folder.mkdir()
    (to / PLOTS / "R1.svg").touch()  # of an earlier reference run
    record(out, "A1", "N5", quick=False)
    record(out, "N4", quick=True)
    made = publish.publish(out, to)
    assert Reference.load(to / "reference.json") == made
    assert {name: run.quick for name, run in made.figures.items()} == {"A1": False, "N4": True, "N5": False}
    assert sorted(path.name for path in (to / PLOTS).iterdir()) == ["A1.svg", "N4.svg", "N5.svg"]
    for path in (to / PLOTS).iterdir():
        assert path.stat().st_size < MOST_SVG_BYTES
        drawn = path.read_text()
        ElementTree.fromstring(drawn)  # noqa: S314 - our own
        assert 'fill="#ffffff"' in drawn
        assert " style=" not in drawn
    assert made.figures["N5"].kernel == "6.18"
    written = page("N5", made)
    assert "with the full set, on commit abcdef1" in written
    assert written.count(f"**{REPRODUCED}**") == len(FIGURES["N5"].claims)


def test_an_interrupted_figure_is_not_published(tmp_path: Path) -> None:
    for folder in ("out", "site"):
        (tmp_path / folder).mkdir()
    record(tmp_path / "out", "T2", quick=True)
    last = Records(tmp_path / "out" / "records").folders()[-1] / "record.json"
    last.rename(last.with_suffix(".new"))
    assert publish.publish(tmp_path / "out", tmp_path / "site").figures == {}
    last.with_suffix(".new").rename(last)
    assert list(publish.publish(tmp_path / "out", tmp_path / "site").figures) == ["T2"]


@pytest.mark.parametrize(
    ("out", "to", "words"), [("none", "site", "no folder records"), ("out", "none", "no such folder")]
)
def test_mistakes_name_the_folder(tmp_path: Path, out: str, to: str, words: str) -> None:
    for folder in ("out", "site"):
        (tmp_path / folder).mkdir()
    (tmp_path / "out" / "records").mkdir()
    with pytest.raises(OptionError, match=words):
        publish.publish(tmp_path / out, tmp_path / to)
    assert publish.main([]) == 2


# ------------------------------------------------------------ pages


def test_a_figure_that_was_not_run_says_so() -> None:
    written = page("R2", Reference(2, 8.0))
    assert "This figure was not run in the reference run" in written
    assert "## Conditions" not in written
    assert "With 4 of 4 racks upgraded, a ring takes x steps. | 6 | 6 | - | not run in" in written


def test_a_quick_run_and_a_missing_number() -> None:
    claims = {"rings-32": Result(missing="no run of gloo in two rails")}
    run = FigureRun(True, 0.4, "abcdef1", "6.18", "2026-11-22", claims)
    written = page("N8", Reference(2, 8.0, {"N8": run}))
    assert f"**{NOT_MEASURED}**: no run of gloo in two rails" in written
    assert written.count("only in the full set") == 7
    assert "Estimated time in minutes: < 1." in written


def test_the_overview_has_a_row_for_each_figure() -> None:
    lines = list(hook().overview(Reference.load()))
    for name, figure in FIGURES.items():
        (row,) = [line for line in lines if line.startswith(f"| [{name}: ")]
        assert figure.headline.text in row
