# SPDX-License-Identifier: Apache-2.0
"""Help texts and tables fit their width, and progress stays off stdout."""

from __future__ import annotations

import io
import re
import sys

import pytest
from commands import every_command
from rich.console import Console
from typer.testing import CliRunner

from railweave.cli import build
from railweave.commands import common
from railweave.experiments import tables
from railweave.experiments.accounting import BYTE_CLASSES, RailAccount
from railweave.experiments.allreduce import report
from railweave.experiments.scaling import run as scaling

WIDTH = 100
NARROW = 80  # width of help, if the terminal has no width


PATHS = [path for path, _ in every_command()]


def help_of(path: str, width: int) -> list[str]:
    words = [*path.split(), "--help"]
    done = CliRunner().invoke(build(words[0]), words, env={"COLUMNS": str(width)})
    assert done.exit_code == 0
    return done.output.splitlines()


@pytest.mark.parametrize("path", ["", *PATHS])
def test_help_fits_and_no_summary_is_cut(path: str) -> None:
    for width in (NARROW, 200):
        lines = help_of(path, width)
        assert max(map(len, lines)) <= WIDTH
        assert not [line for line in lines if re.search(r"\w\.\.\.$", line)]


@pytest.mark.parametrize("path", PATHS)
def test_help_is_of_one_style(path: str) -> None:
    """Each command starts with an imperative sentence, and its examples have a line each."""
    lines = help_of(path, WIDTH)
    first = next(
        line.strip() for line in lines[1:] if line.startswith("  ") and not line.strip().startswith("[")
    )
    assert first[0].isupper()
    assert first.endswith(".")
    shown = lines[lines.index("  Examples:") + 1 :] if "  Examples:" in lines else []
    assert shown or path in ("bench", "topo")
    assert all(line.startswith(("    railweave ", "        ")) for line in shown)


# Options with one meaning in all commands; the second sentence of a help text is the default.
SHARED = (
    *("--repeat", "--rails", "--rate", "--out", "--json", "--compare", "--seed", "--switch", "--plot"),
    *("--size", "--iters", "--warmup", "--loss", "--dtype", "--shares"),
)
OTHER_HELP = {
    ("reproduce", "--out"),
    ("bench striping", "--rate"),
    ("controller", "--loss"),
    ("plan", "--dtype"),
}


def test_an_option_has_one_meaning_and_one_help_text() -> None:
    texts: dict[str, set[str]] = {}
    for path, command in every_command():
        for option in command.params:
            if (path, option.opts[0]) not in OTHER_HELP:
                texts.setdefault(option.opts[0], set()).add((option.help or "").partition(" Default: ")[0])
    for option in SHARED:
        assert len(texts[option]) == 1, texts[option]


def account(name: str) -> RailAccount:
    big = 1_234_567_000
    return RailAccount(
        name, "ina", big, big, dict.fromkeys(BYTE_CLASSES, big), 2 * big, 1e9, 0.5, 123_456, 165_973, 165_973,
        multicast_bytes=big, fetched_bytes=big, others={"tcp port 7777": big},
    )  # fmt: skip


def test_tables_of_rails_fit() -> None:
    out = io.StringIO()
    console = Console(file=out, width=WIDTH)
    console.print(tables.rail_table([account("rdma0"), account("netreduce")]))
    console.print(tables.byte_table([account("rdma0"), account("netreduce")]))
    assert "…" not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 4 + 5, "a row has two lines"


SHARES = tables.shares(dict.fromkeys(("ina", "tcp0", "tcp1", "rdma"), 0.25))


@pytest.mark.parametrize(("lines", "words"), [(report.LINES, SHARES), (scaling.LINES, "ina+tcp+rdma")])
def test_tables_that_grow_by_lines_fit(lines: tables.Lines, words: str) -> None:
    count = len(lines._widths)
    for line in [*lines.titles.split("\n"), lines.row(["1"] * count, words)]:
        assert len(line) <= WIDTH
    titles, units = lines.titles.split("\n")
    assert titles.index("mean") + len("mean") == units.index("us") + len("us")


def test_notes_are_wrapped() -> None:
    first, second = tables.notes("word " * 30).split("\n")
    assert first.startswith("# word")
    assert second.startswith("#   word")
    assert len(first) <= WIDTH


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_line_that_is_erased(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "20")
    progress = common.Progress()
    progress.show("a network is made")
    progress.show("a long text that does not fit")
    progress.echo("a row", err=False)
    progress.clear()
    erase = common.ERASE_LINE
    long = "a long text that do"
    assert sys.stderr.getvalue() == f"{erase}a network is made{erase}{long}{erase}{erase}{long}{erase}"  # type: ignore[attr-defined]
    assert capsys.readouterr().out == "a row\n"


def test_progress_elsewhere_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: now[0])
    progress = common.Progress()
    progress.show("a phase")
    for step in range(12):
        now[0] += 1
        progress.show(f"step {step}", often=True)
    progress.clear()
    said = capsys.readouterr()
    assert said.err.splitlines() == ["a phase", "step 4", "step 9"]
    assert said.out == ""


def test_rows_and_json_go_where_they_belong(capsys: pytest.CaptureFixture[str]) -> None:
    common.phase("a phase")
    common.teller(None)("a row")
    common.note("the folder")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("a row\n", "a phase\nthe folder\n")
    common.teller(common.Path("-"))("a row")
    assert capsys.readouterr() == ("", "a row\n")
