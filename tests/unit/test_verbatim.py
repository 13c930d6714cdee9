# SPDX-License-Identifier: Apache-2.0
"""Text from users is printed and drawn unchanged: square brackets, colons and dollars have no meaning."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from railweave.commands import common, doctor, why
from railweave.commands.checks import Finding
from railweave.experiments import timeline
from railweave.experiments.timeline import Span
from railweave.topologies import draw
from railweave.topologies.planes import planes
from railweave.topologies.serialize import to_yaml
from railweave.v1 import controller_pb2 as pb

NAME = "h[/]B[bold]:x:[fd00::1]:9600"  # a closing tag, an opening one, an emoji, and an address


def test_consoles_print_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    common.console(None).print(NAME)
    assert capsys.readouterr().out == f"{NAME}\n"


def test_doctor_prints_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("controller", False, True, f"no answer at {NAME}", "one", f"start {NAME}")
    monkeypatch.setattr(doctor, "run_checks", lambda: [finding])
    said = CliRunner().invoke(doctor.app).stdout
    assert f"no answer at {NAME}: expected one" in said
    assert f"start {NAME}" in said
    assert "\nabsent" in said


def test_why_prints_names_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    tree = pb.TreeReport(tree=0, group=3, root=NAME, switches=[NAME], paused=f"switch {NAME} is gone")
    ranks = [pb.RankReport(rank=0, decisions=[pb.Decision(collective="all_reduce", rail="r", reason=NAME)])]
    rails = [
        pb.RailReport(rail="a", kind="ina", plane=NAME, trees=[tree]),
        pb.RailReport(rail="b", kind="ina", plane="p", refusal=f"no switch {NAME}"),
        pb.RailReport(rail="c", kind="netreduce", plane="p", sums=pb.Sums(reason=NAME)),
    ]
    why._print_job(pb.JobReport(job=NAME, size=2, rails=rails, ranks=ranks), common.console(None))
    said = capsys.readouterr().out
    assert said.count(NAME) == 8
    assert "[dim]" not in said
    assert "[yellow]" not in said


def test_topologies_are_printed_and_drawn_with_their_names(tmp_path: Path) -> None:
    given = yaml.safe_load(to_yaml(replace(planes(2, ("tcp",)), name=NAME)).replace("h2", "h[/]$B^$"))
    path = tmp_path / "net.yaml"
    path.write_text(yaml.safe_dump(given))
    from railweave.topologies.serialize import load  # noqa: PLC0415

    topology = load(path)
    console = Console(file=io.StringIO(), markup=False, emoji=False, width=200)
    console.print(draw.tree(topology))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{NAME}: 2 hosts" in said
    assert "port 2: h[/]$B^$  h[/]$B^$-tcp" in said
    draw.picture(topology, tmp_path / "net.svg")
    timeline.draw(
        [Span(0, "tcp", 0, 0.0, 1.0, 4)], ["tcp"], tmp_path / "t.svg", "echo $^$", events=[(0.5, "cut $^$")]
    )
