# SPDX-License-Identifier: Apache-2.0
"""The figures' plans, plots and claims, and the report of them, from records that a cost model made."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import model_records
import pytest
from typer.testing import CliRunner

from railweave.cli import build
from railweave.experiments import reproduce
from railweave.experiments.claims import NOT_MEASURED, NOT_REPRODUCED
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import FILES, FOLDER, Figure, figures, models
from railweave.experiments.records import Record, Records
from railweave.experiments.report.page import Entry
from railweave.experiments.scenario import Scenario

PAPERS = {
    "A": ["A1", "A2", "A3", "A4", "A5", "A6"],
    "N": ["N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8"],
    "R": ["R1", "R2", "R3"],
    "S": ["S1", "S2"],
    "T": ["T1", "T2", "T3", "T4"],
}
NAMES = [name for names in PAPERS.values() for name in names]
EXAMPLE = Path(__file__).parents[2] / "examples" / "lossy_links"
BUDGET_S = {True: 700, False: 4000}


def recorded(options: reproduce.Options, skip: str = "") -> Records:
    """Record what the plan needs; runs of the contender `skip` are skipped."""

    def change(record: Record) -> Record:
        if record.contender != skip:
            return record
        return replace(record, status="skipped", error="it is <not> installed", samples=())

    steps = {step.key: step for figure in options.figures for step in options.plan(figure)}
    made = [record for step in steps.values() for record in model_records.of(step, change)]
    records = Records(options.out / "records.jsonl")
    records.path.write_text("".join(record.line() for record in made))
    return records


def entries(options: reproduce.Options, records: Records) -> dict[str, Entry]:
    return {entry.name: entry for entry in reproduce._entries(options, records)}


@pytest.mark.parametrize("quick", [True, False])
def test_all_figures_are_drawn_and_judged(tmp_path: Path, quick: bool) -> None:
    options = reproduce.Options(figures(), tmp_path, quick)
    found = entries(options, recorded(options))
    assert list(found) == NAMES
    for entry in found.values():
        ElementTree.fromstring(entry.svg)  # noqa: S314 - our own
        assert entry.verdicts
        assert {verdict.verdict for verdict in entry.verdicts}.isdisjoint({NOT_MEASURED}), entry.name
        assert all(verdict.reason for verdict in entry.verdicts if verdict.verdict == NOT_REPRODUCED)
    assert any(entry.left_out for entry in found.values()) == quick


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_an_interrupted_figure_is_drawn(tmp_path: Path, figure: Figure) -> None:
    options = reproduce.Options([figure], tmp_path, quick=True)
    records = recorded(options).read()
    keys = list(dict.fromkeys(record.scenario for record in records))
    for known in [*(keys[:end] for end in range(1, len(keys))), *([key] for key in keys)]:
        found = reproduce.entry(options, figure, [each for each in records if each.scenario in known])
        assert found.verdicts


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("paper", PAPERS)
def test_the_plan_keeps_to_its_time(tmp_path: Path, quick: bool, paper: str) -> None:
    options = reproduce.Options(figures([paper]), tmp_path, quick)
    assert [figure.name for figure in options.figures] == PAPERS[paper]
    steps = {step.key: step for figure in options.figures for step in options.plan(figure)}
    assert sum(reproduce.seconds(step) for step in steps.values()) < BUDGET_S[quick]
    for step in steps.values():
        if isinstance(step, Scenario):
            step.check()


def test_the_report_is_one_file_that_needs_no_network(tmp_path: Path) -> None:
    options = reproduce.Options(figures(["N4", "N6"]), tmp_path, quick=True)
    page = reproduce.write(options, recorded(options)).read_text()
    assert page.count("<svg") == 2
    used = set(re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page))
    assert all(target.startswith("#") for target in used), used
    assert not re.search(r"@import|<script|<link|<img", page)
    assert "railweave reproduce N4 --quick" in page
    defined, wanted = set(re.findall(r"(--c\w+):", page)), set(re.findall(r"var\((--c\w+)\)", page))
    assert wanted <= defined
    assert {"N4.svg", "N6.svg", "N4.pdf", "N6.pdf"} <= {file.name for file in tmp_path.iterdir()}
    printed = (tmp_path / "N4.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert b"/FontFile2" in printed, "TrueType fonts are embedded"
    assert b"/Type3" not in printed


def test_a_missing_contender_is_left_out_and_named(tmp_path: Path) -> None:
    options = reproduce.Options(figures(["N5"]), tmp_path, quick=True)
    records = recorded(options, skip="gloo")
    (entry,) = reproduce._entries(options, records)
    missing = [verdict for verdict in entry.verdicts if verdict.verdict == NOT_MEASURED]
    assert len(missing) == 4
    assert all("it is <not> installed" in verdict.reason for verdict in missing)
    assert ">gloo<" not in entry.svg
    page = reproduce.page([entry], "", {}, quick=True)
    assert "gloo, 4 hosts, 100 Mbit/s: 2 of 2 runs skipped: it is &lt;not&gt; installed" in page


def test_other_figures_with_records_stay_in_the_report(tmp_path: Path) -> None:
    recorded(reproduce.Options(figures(["N1", "N6"]), tmp_path, quick=True))
    options = reproduce.Options(figures(["N4"]), tmp_path, quick=True)
    found = entries(options, Records(tmp_path / "records.jsonl"))
    assert list(found) == ["N1", "N4", "N6"]  # N2 shares a scenario with N1, but has more
    assert found["N4"].svg == ""
    assert (
        "Nothing is measured yet" in reproduce.write(options, Records(tmp_path / "records.jsonl")).read_text()
    )


def test_a_claim_that_is_not_reproduced_fails_the_command(tmp_path: Path) -> None:
    records = recorded(reproduce.Options(figures(["N1"]), tmp_path, quick=True))
    command = ["reproduce", "N1", "--quick", "--out", str(tmp_path)]
    assert CliRunner().invoke(build("reproduce"), command).exit_code == 0
    slow = [slowed(record) if record.contender == "tcp+tcp" else record for record in records.read()]
    records.path.write_text("".join(record.line() for record in slow))
    done = CliRunner().invoke(build("reproduce"), command)
    assert done.exit_code == 1
    assert re.search(r"claims that are not reproduced: \d+: expected none; read", done.stderr)


def slowed(record: Record) -> Record:
    """Return the record of a run whose calls took ten times as long."""
    samples = (
        replace(sample, times_us=tuple(10 * time_us for time_us in sample.times_us))
        for sample in record.samples
    )
    return replace(record, samples=tuple(samples))


def test_runs_change_rounds_and_not_the_key(tmp_path: Path) -> None:
    usual, more = (reproduce.Options(figures(["N1"]), tmp_path, runs=runs) for runs in (None, 9))
    (step,), (longer,) = usual.plan(usual.figures[0]), more.plan(more.figures[0])
    assert isinstance(longer, Scenario)
    assert (longer.repetitions, longer.key) == (9, step.key)


def test_a_figure_of_ones_own_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(OptionError, match=r"figure .*mine.*: expected one of A1, .*, or a folder with scen"):
        figures([str(folder)])
    for file in FILES:
        (folder / file).write_text((FOLDER / "N1" / file).read_text())
    assert figures([str(folder), "N1"]) == [Figure(folder), Figure(FOLDER / "N1")]


COUNTED = """
from railweave.experiments.figures import Experiment, key_of, run_by
from railweave.topologies.errors import LabError


def plan(quick):
    return [Experiment(name, key_of(name, {}), 1.0, run_of(name)) for name in ("breaks", "counted")]


def run_of(name):
    async def run(out, on_phase):
        with (out.parents[1] / name).open("a") as file:
            file.write("run")
        if name == "breaks":
            raise LabError("a switch has ended")
        return [run_by(name, {}, 0, contender="x", extra={"number": 1.0})]

    return run
"""


def test_what_is_recorded_is_not_run_again_and_what_fails_is_named(tmp_path: Path) -> None:
    folder, out = tmp_path / "mine", tmp_path / "out"
    figure_of(folder, COUNTED)
    options = reproduce.Options(figures([str(folder)]), out)
    reproduce.check(options)
    for _ in range(2):
        assert asyncio.run(reproduce.reproduce(options)) == ["mine, breaks: a switch has ended"]
    assert (out / "counted").read_text() == "run"
    assert (out / "breaks").read_text() == "runrun"
    assert [record.name for record in Records(out / "records.jsonl").read()] == ["counted"]
    assert "railweave reproduce " + str(folder) in (out / "report.html").read_text()


FAILING = """
from railweave.experiments.figures import Experiment, key_of, run_by


def plan(quick):
    return [Experiment("once", key_of("once", {}), 1.0, run)]


async def run(out, on_phase):
    again = (out.parents[1] / "tried").exists()
    (out.parents[1] / "tried").touch()
    failed = {} if again else {"status": "failed", "error": "a switch was slow"}
    extra = {"number": 1.0}
    return [run_by("once", {}, 0, contender="x", extra=extra), run_by("once", {}, 1, contender="x", **failed)]
"""


def figure_of(folder: Path, scenario: str) -> Figure:
    folder.mkdir()
    for file in FILES:
        (folder / file).write_text((FOLDER / "N1" / file).read_text())
    (folder / "scenario.py").write_text(scenario)
    return Figure(folder)


def test_failed_runs_are_named_and_the_same_command_tries_them_again(tmp_path: Path) -> None:
    figure_of(tmp_path / "mine", FAILING)
    command = ["reproduce", str(tmp_path / "mine"), "--out", str(tmp_path / "out")]
    first, second, third = (CliRunner().invoke(build("reproduce"), command) for _ in range(3))
    assert (first.exit_code, second.exit_code, third.exit_code) == (1, 0, 0)
    assert "railweave: once: x, round 2 failed: a switch was slow" in first.output.splitlines()
    assert first.output.splitlines()[-1].endswith("run the same command again, which repeats them")
    assert "a switch was slow" not in second.output
    assert len(Records(tmp_path / "out" / "records.jsonl").read()) == 4  # the third ran nothing
    assert "a switch was slow" not in (tmp_path / "out" / "report.html").read_text()


def test_records_of_another_commit_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = reproduce.Options([figure_of(tmp_path / "mine", FAILING)], tmp_path / "out")
    reproduce.check(options)
    asyncio.run(reproduce.reproduce(options))
    records = Records(options.out / "records.jsonl")
    assert not reproduce.other_sources(records.read())
    old, *others = records.read()
    records.path.write_text("".join(r.line() for r in (replace(old, commit="0123456789ab"), *others)))
    asyncio.run(reproduce.reproduce(options))
    (warning,) = caplog.messages
    assert "1 of 2 records are not of this version" in warning
    assert ": 1 of commit 0123456789ab. Give --out a new folder" in warning
    _, _, body = (options.out / "report.html").read_text().partition("<body>\n")
    assert "1 of commit 0123456789ab" in body.splitlines()[0]


@pytest.mark.parametrize("name", ["report.html", "records.jsonl"])
@pytest.mark.parametrize("text", ["", "mine", '{"x": 1}'])
def test_a_folder_of_something_else_stays_as_it_is(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    if (name, text) == ("records.jsonl", ""):
        return  # as this command leaves it where it is interrupted
    result = CliRunner().invoke(build("reproduce"), ["reproduce", "A1", "--out", str(tmp_path)])
    (line,) = result.output.splitlines()
    assert f"--out {tmp_path}: the folder has files that this command did not write" in line
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, text)]


def test_an_interrupted_first_record_is_of_this_command(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"vers')
    reproduce.check(reproduce.Options(figures(["A1"]), tmp_path))


def test_the_example_is_a_figure(tmp_path: Path) -> None:
    options = reproduce.Options(figures([str(EXAMPLE)]), tmp_path)
    entry = entries(options, recorded(options))["lossy_links"]
    assert entry.svg
    assert [verdict.claim.id for verdict in entry.verdicts if verdict.measured] == ["repair", "exact"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["N9"], "figure 'N9': expected one of A1"),
        (["N1", "--repeat", "0"], "Invalid value for '--repeat'"),
        (["N1", "--out", "/dev/null/x"], "--out /dev/null/x: Not a directory"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(build("reproduce"), ["reproduce", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_the_list_says_how_long_it_takes() -> None:
    result = CliRunner().invoke(build("reproduce"), ["reproduce", "--list", "--quick"])
    assert re.findall(r"^(\w\d)  .*, about \d+ min$", result.output, re.MULTILINE) == NAMES


def test_without_names_it_is_nezha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[reproduce.Options] = []

    async def run(options: reproduce.Options, on_phase: object) -> list[str]:
        asked.append(options)
        return []

    monkeypatch.setattr(reproduce, "reproduce", run)
    for names in ([], ["A", "N1"]):
        assert (
            not CliRunner()
            .invoke(build("reproduce"), ["reproduce", *names, "--out", str(tmp_path)])
            .exit_code
        )
    found = [[figure.name for figure in options.figures] for options in asked]
    assert found == [PAPERS["N"], [*PAPERS["A"], "N1"]]


def test_messages_are_those_of_the_models() -> None:
    found = {model.name: model for model in models.load(FOLDER / "N7")}
    assert {name: sum(model.tensors) for name, model in found.items()} == {
        "ResNet-50": 25_557_032,
        "VGG-16": 138_357_544,
        "BERT-base": 109_482_240,
        "GPT-2": 124_439_808,
    }
    assert len(found["ResNet-50"].tensors) == 161
    for model in found.values():
        buckets = model.buckets()
        assert sum(buckets) == 4 * sum(model.tensors)
        assert all(size >= models.BUCKET_BYTES for size in buckets[1:-1])
        assert sum(model.buckets(64)) == pytest.approx(sum(buckets) / 64, rel=1e-3)


def test_a_report_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    options = reproduce.Options(figures(["N6"]), tmp_path, quick=True)
    recorded(options)
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OptionError, match="Is a directory; finished runs are recorded"):
        asyncio.run(reproduce.reproduce(options))
