# SPDX-License-Identifier: Apache-2.0
"""The figures' plans, plots, claims and report, from the records of a cost model."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import model_records
import pytest
from commands import ROOT, invoke

from railweave.experiments import reproduce
from railweave.experiments.claims import NOT_MEASURED, judge
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import OWN, TEXT, Figure, figures, models
from railweave.experiments.measures import NotMeasured, Runs
from railweave.experiments.records import Record, Records
from railweave.experiments.report.page import Entry
from railweave.experiments.scenario import Scenario

PAPERS = {
    "A": ["A1", "A2", "A3", "A4", "A5", "A6"],
    "C": ["C1", "C2", "C3"],
    "N": ["N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8"],
    "R": ["R1", "R2", "R3"],
    "S": ["S1", "S2"],
    "T": ["T1", "T2", "T3", "T4"],
}
NAMES = [name for names in PAPERS.values() for name in names]
EXAMPLE, HOWTO = ROOT / "examples" / "lossy_links", ROOT / "docs" / "howto" / "figure.md"
BUDGET_S = {True: 700, False: 4000}
LEFT_OUT = {"A2": 4, "N3": 2, "N7": 2, "N8": 4, "S1": 10}  # claims that the quick set does not measure


def entries(options: reproduce.Options, records: Records) -> dict[str, Entry]:
    return {entry.figure.name: entry for entry in reproduce._entries(options, records)}


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_a_quick_figure_is_drawn_and_judged_also_before_its_end(tmp_path: Path, figure: Figure) -> None:
    """Another figure may have measured the last scenario before."""
    options = reproduce.Options([figure], tmp_path, quick=True)
    records = model_records.of_plan(options)
    keys = tuple(dict.fromkeys(record.scenario for record in records))
    for known in dict.fromkeys((keys[:1], keys[-1:], keys[:-1] or keys)):
        runs = Runs([each for each in records if each.scenario in known])
        with suppress(NotMeasured):
            figure.draw(runs)
        assert [judge(claim, runs) for claim in figure.claims]
    found = reproduce.entry(options, figure, records)
    ElementTree.fromstring(found.svg)  # noqa: S314 - our own
    assert {verdict.verdict for verdict in found.verdicts}.isdisjoint({NOT_MEASURED})
    assert found.left_out == LEFT_OUT.get(figure.name, 0)


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
    page = reproduce.write(options, model_records.record(options)).read_text()
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

    def skipped(record: Record) -> Record:
        if record.contender != "gloo":
            return record
        return replace(record, status="skipped", error="it is <not> installed", samples=())

    records = model_records.record(options, skipped)
    (entry,) = reproduce._entries(options, records)
    missing = [verdict for verdict in entry.verdicts if verdict.verdict == NOT_MEASURED]
    assert len(missing) == 4
    assert all("it is <not> installed" in verdict.reason for verdict in missing)
    assert ">gloo<" not in entry.svg
    page = reproduce.page([entry], "", {}, quick=True)
    assert "gloo, 4 hosts, 100 Mbit/s: 2 of 2 runs skipped: it is &lt;not&gt; installed" in page


def test_other_figures_with_records_stay_in_the_report(tmp_path: Path) -> None:
    model_records.record(reproduce.Options(figures(["N1", "N6"]), tmp_path, quick=True))
    options = reproduce.Options(figures(["N4"]), tmp_path, quick=True)
    records = Records(tmp_path / "records")
    found = entries(options, records)
    assert list(found) == ["N1", "N4", "N6"]  # N2 shares a scenario with N1, but has more
    assert found["N4"].svg == ""
    assert "Nothing is measured yet" in reproduce.write(options, records).read_text()


def test_a_claim_that_is_not_reproduced_fails_the_command(tmp_path: Path) -> None:
    records = model_records.record(reproduce.Options(figures(["N1"]), tmp_path, quick=True))
    assert invoke(f"reproduce N1 --quick --out {tmp_path}").exit_code == 0
    slow = Records(tmp_path / "slow" / "records")
    for record in records.read():
        slow.append(model_records.slower(record, 10) if record.contender == "tcp+tcp" else record)
    done = invoke(f"reproduce N1 --quick --out {tmp_path}/slow")
    assert done.exit_code == 1
    assert re.search(r"claims that are not reproduced: \d+: expected none; read", done.stderr)


def test_runs_change_rounds_and_not_the_key(tmp_path: Path) -> None:
    usual, more = (reproduce.Options(figures(["N1"]), tmp_path, runs=runs) for runs in (None, 9))
    (step,), (longer,) = usual.plan(usual.figures[0]), more.plan(more.figures[0])
    assert isinstance(longer, Scenario)
    assert (longer.repetitions, longer.key) == (9, step.key)


def figure_of(folder: Path, file: str, **modules: str) -> Figure:
    folder.mkdir()
    (folder / OWN).write_text(file)
    (folder / TEXT).write_text("# Mine")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return figures([str(folder)])[0]


def test_a_figure_of_ones_own_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"figure .*mine.*: expected one of A1, .*, or a folder with"):
        figures([str(tmp_path / "mine")])
    mine = figure_of(tmp_path / "mine", (EXAMPLE / OWN).read_text())
    assert figures([str(tmp_path / "mine"), "N1"]) == [mine, *figures(["N1"])]


EXPERIMENTS = """
title = "Mine"
about = "A test."
[[experiments]]
each.name = ["breaks", "counted"]
name = "{name}"
run = "measured"
contender = "x"
seconds = 1
options = { file = "{name}" }
[[panels]]
kind = "own"
run = "drawn"
scenario = "counted"
[[claims]]
id = "one"
text = "x is one."
measure = { what = "extra", scenario = "counted", field = "number" }
expected = [1, 1]
expected_because = "it is one"
"""

COUNTED = """
from railweave.topologies.errors import LabError


async def measure(options, out, on_phase):
    with (out.parents[1] / options["file"]).open("a") as file:
        file.write("run")
    if options["file"] == "breaks":
        raise LabError("a switch has ended")
    return [{"number": 1.0}]
"""

DRAWN = """
def draw(axes, runs):
    axes.set_title(f"drawn: {runs.kept['counted'][0].extra['number']}")
"""


def test_what_is_recorded_is_not_run_again_and_what_fails_is_named(tmp_path: Path) -> None:
    folder, out = tmp_path / "mine", tmp_path / "out"
    figure_of(folder, EXPERIMENTS, measured=COUNTED, drawn=DRAWN)
    options = reproduce.Options(figures([str(folder)]), out)
    reproduce.check(options)
    for _ in range(2):
        assert asyncio.run(reproduce.reproduce(options)) == ["breaks: x, round 1 failed: a switch has ended"]
    assert (out / "counted").read_text() == "run"
    assert (out / "breaks").read_text() == "runrun"
    names = [record.name for record in Records(out / "records").read()]
    assert names == ["breaks", "counted", "breaks"]
    report = (out / "report.html").read_text()
    assert f"railweave reproduce {folder} --out {out}" in report
    assert "drawn: 1.0" in report


FAILING = """
from railweave.topologies.errors import LabError


def measure(options, out, on_phase):
    tried = out.parents[1] / "tried"
    if options["file"] == "breaks" and not tried.exists():
        tried.touch()
        raise LabError("a switch was slow")
    return [{"number": 1.0}]
"""


def test_failed_runs_are_named_and_the_same_command_tries_them_again(tmp_path: Path) -> None:
    figure_of(tmp_path / "mine", EXPERIMENTS, measured=FAILING, drawn=DRAWN)
    command = f"reproduce {tmp_path}/mine --out {tmp_path}/out"
    first, second, third = (invoke(command) for _ in range(3))
    assert (first.exit_code, second.exit_code, third.exit_code) == (1, 0, 0)
    assert "railweave: breaks: x, round 1 failed: a switch was slow" in first.output.splitlines()
    assert first.output.splitlines()[-1].endswith("run the same command again, which repeats them")
    assert "a switch was slow" not in second.output
    assert len(Records(tmp_path / "out" / "records").read()) == 3  # the third ran nothing
    assert "a switch was slow" not in (tmp_path / "out" / "report.html").read_text()


def test_records_of_another_commit_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    figure = figure_of(tmp_path / "mine", EXPERIMENTS, measured=FAILING, drawn=DRAWN)
    (tmp_path / "tried").touch()
    options = reproduce.Options([figure], tmp_path / "out")
    reproduce.check(options)
    asyncio.run(reproduce.reproduce(options))
    records = Records(options.out / "records")
    assert not reproduce.other_sources(records.read())
    records.append(replace(records.read()[0], round=1, commit="0123456789ab"))
    asyncio.run(reproduce.reproduce(options))
    (warning,) = caplog.messages
    assert "1 of 3 records are not of this version" in warning
    assert ": 1 of commit 0123456789ab. Give --out a new folder" in warning
    _, _, body = (options.out / "report.html").read_text().partition("<body>\n")
    assert "1 of commit 0123456789ab" in body.splitlines()[0]


@pytest.mark.parametrize("name", ["report.html", "records"])
@pytest.mark.parametrize("text", ["", "mine", '{"x": 1}'])
def test_a_folder_of_something_else_stays_as_it_is(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    result = invoke(f"reproduce A1 --out {tmp_path}")
    (line,) = result.output.splitlines()
    assert f"--out {tmp_path}: the folder has files that this command did not write" in line
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, text)]


def test_an_interrupted_first_record_is_of_this_command(tmp_path: Path) -> None:
    (tmp_path / "records" / "1").mkdir(parents=True)
    reproduce.check(reproduce.Options(figures(["A1"]), tmp_path))


def test_the_example_is_a_figure(tmp_path: Path) -> None:
    options = reproduce.Options(figures([str(EXAMPLE)]), tmp_path)
    entry = entries(options, model_records.record(options))["lossy_links"]
    assert entry.svg
    assert [verdict.claim.id for verdict in entry.verdicts if verdict.measured] == ["repair", "exact"]


@pytest.mark.parametrize(("key", "claims"), [("", ["repair", "exact"]), ("exact = false\n", ["repair"])])
def test_a_figure_with_scenarios_claims_that_results_are_exact(
    tmp_path: Path, key: str, claims: list[str]
) -> None:
    text, _, _ = (EXAMPLE / OWN).read_text().partition("[claims.exact]")
    figure = figure_of(tmp_path / "mine", key + text)
    assert [claim.id for claim in figure.claims] == claims


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title = ", "= ", "Invalid statement"),
        ('title = "Mine"', "title = 3", "figure.title: 3: expected text"),
        ('about = "A test."', 'about = "A test."\nmore = 1', "unknown key 'more'"),
        ('about = "A test."', 'about = "A test."\nmain = "two"', "main 'two': expected the id of one of"),
        ('kind = "own"', 'kind = "pie"', "panels[0]: kind 'pie': expected one of times, curves, bars"),
        ('run = "drawn"', 'run = "lost"', "run = 'lost': expected the file"),
        ('run = "measured"', 'run = "drawn"', "drawn.py: no function measure: expected def measure(…)"),
        ('run = "measured"', 'run = "lost"', "run = 'lost': expected the file"),
        ('each.name = ["breaks", "counted"]', "each.name = 3", "names with a list of values each"),
        ('name = "{name}"', 'name = "breaks"', "'breaks' stands 2 times: expected different names"),
        ("[[claims]]", "[[claims]]\neach.n = [1, 2]", "claim 'one' stands 2 times: expected different"),
        ("seconds = 1", "seconds = 1\nquick = 3", "quick = 3: expected a table of keys, or false"),
        ('file = "{name}"', 'file = "{nam}"', "text '{nam}': expected in braces only the names name"),
        ("[[claims]]", '[[claims]]\nlike = "on"', "like = 'on': expected one of the templates exact"),
        ('what = "extra"', 'what = "luck"', "expected what = one of speedup"),
        (
            'scenario = "counted", field',
            'scenario = "count", field',
            "claim 'one' names the scenario 'count': expected one of breaks; counted; correct the name",
        ),
        ('scenario = "counted"\n', 'scenario = "none*"\n', "panel 1 names the scenario 'none*': expected"),
    ],
)
def test_mistakes_in_a_figure_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert EXPERIMENTS.count(old) == 1
    folder = tmp_path / "mine"
    figure_of(folder, EXPERIMENTS, measured=COUNTED, drawn=DRAWN)
    (folder / OWN).write_text(EXPERIMENTS.replace(old, new))
    result = invoke(f"reproduce {folder} --out {tmp_path}/out")
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert f"{folder / OWN}: " in line
    assert words in line


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('contenders = ["ina", "rdma"]', "", "scenarios[0]: no key 'contenders'"),
        ("sizes = [4096, 65536, 1048576]", 'sizes = "8K:4K"', "larger than the last: expected"),
        ("sizes = [4096, 65536, 1048576]", 'model = "LeNet"', "model 'LeNet': expected one of ResNet-50"),
    ],
)
def test_mistakes_in_a_scenario_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = (EXAMPLE / OWN).read_text()
    assert text.count(old) == 1
    figure = figure_of(tmp_path / "mine", text.replace(old, new))
    with pytest.raises(OptionError) as raised:
        figure.check()
    assert words in str(raised.value)
    assert OWN in str(raised.value)


def test_the_list_says_how_long_it_takes() -> None:
    result = invoke("reproduce --list --quick")
    assert re.findall(r"^(\w\d)  .*, about \d+ min$", result.output, re.MULTILINE) == NAMES


def test_without_names_it_is_nezha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[reproduce.Options] = []

    async def run(options: reproduce.Options, on_phase: object) -> list[str]:
        asked.append(options)
        return []

    monkeypatch.setattr(reproduce, "reproduce", run)
    for names in ("", "A N1"):
        assert invoke(f"reproduce {names} --out {tmp_path}").exit_code == 0
    found = [[figure.name for figure in options.figures] for options in asked]
    assert found == [PAPERS["N"], [*PAPERS["A"], "N1"]]


def test_messages_are_those_of_the_models() -> None:
    found = models.load()
    assert {name: sum(model.tensors) for name, model in found.items()} == {
        "ResNet-50": 25_557_032,
        "VGG-16": 138_357_544,
        "BERT-base": 109_482_240,
        "GPT-2": 124_439_808,
        "AlexNet": 61_100_840,
    }
    assert len(found["ResNet-50"].tensors) == 161
    for model in found.values():
        buckets = model.buckets()
        assert sum(buckets) == 4 * sum(model.tensors)
        assert all(size >= models.BUCKET_BYTES for size in buckets[1:-1])
        assert sum(model.buckets(64)) == pytest.approx(sum(buckets) / 64, rel=1e-3)


def test_a_report_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    options = reproduce.Options(figures(["N6"]), tmp_path, quick=True)
    model_records.record(options)
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OptionError, match="Is a directory; finished runs are recorded"):
        asyncio.run(reproduce.reproduce(options))


def test_the_howto_shows_the_example() -> None:
    shown = re.findall(
        r'^```toml title="figure.toml"\n(.*?)^```', HOWTO.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(shown) == 3
    text = (EXAMPLE / OWN).read_text()
    assert all(part in text for part in shown)
