# SPDX-License-Identifier: Apache-2.0
"""Commands change only files that they have made. They report an unwritable output before they start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import commands
import pytest
import typer

from railweave import outputs
from railweave.benchmarks import ratios
from railweave.commands import common
from railweave.errors import Unavailable
from railweave.outputs import OutputError, check_new_file, new_folder, run_folder, write_new_file

ARGUMENTS = {  # required arguments of commands
    "run": ("--", "true"),
    "algorithm check": ("atp", "--schedules", "1", "--lab"),
    "plan": ("4M",),
    "topo file": ("absent.yaml",),
    "bench": ("--scenario", "absent.toml"),
    "why": ("--controller", "127.0.0.1:1"),
}
KEPT = "kept.svg"


# Every command that writes files, with the option for their path.
OPTIONS = {"--out", "--save", "--json", "--plot", "--pcap"}
WRITING = sorted(
    {
        (path, parameter.opts[0])
        for path, command in commands.every_command()
        for parameter in command.params
        if OPTIONS & set(parameter.opts)
    }
)


def invoke(path: str, *given: str) -> tuple[int, list[str]]:
    """Run a command in this process, and return its exit status and the lines that it printed."""
    done = commands.invoke([*path.split(), *given, *ARGUMENTS.get(path, ())])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output.strip().splitlines()


def test_all_commands_are_looked_at() -> None:
    found = {path for path, _ in WRITING}
    assert {"demo", "run", "doctor", "why", "plan", "reproduce", "switch", "switch tables"} < found
    assert {"bench all-reduce", "bench ratios", "bench soak", "topo planes", "topo file"} < found


@pytest.mark.parametrize(("path", "option"), [one for one in WRITING if one[1] != "--pcap"])
def test_a_bad_place_is_one_line_before_anything_starts_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(KEPT).write_text("data")
    if path == "topo file":
        assert invoke("topo planes", "--save", "absent.yaml")[0] == 0
    if path == "bench":
        Path("absent.toml").write_text("\n".join(invoke("bench broadcast", "--print-scenario")[1]))
    code, lines = invoke(path, option, f"{KEPT}/below.svg")  # a file is no folder, even for root
    assert code == 2
    (line,) = lines
    assert f"{option} {KEPT}/below.svg: " in line
    assert "name another one" in line
    if option in {"--json", "--plot"}:
        code, (line,) = invoke(path, option, KEPT)
        assert code == 2
        assert f"{option} {KEPT}: the file holds something already: expected a new or empty file" in line
    assert Path(KEPT).read_text() == "data"


def test_a_capture_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "lo_out.pcap").write_text("data")
    code, (line,) = invoke("switch", "-i", "1@lo", "--pcap", str(tmp_path))
    assert code == 2
    assert "lo_out.pcap: the file holds something already" in line
    assert (tmp_path / "lo_out.pcap").read_text() == "data"
    assert [file.name for file in tmp_path.iterdir()] == ["lo_out.pcap"]


def test_ratios_leave_the_folder_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    async def run(out: Path, on_phase: object) -> tuple[list[ratios.Found], list[str]]:
        (out / "result").write_text("new")
        asked.append(out)
        return [], []

    monkeypatch.setattr(ratios, "run", run)
    monkeypatch.chdir(tmp_path)
    Path("result").write_text("data")
    for out in (".", ".", str(tmp_path)):
        assert invoke("bench ratios", "--out", out)[0] == 0
    assert asked == [Path("1"), Path("2"), tmp_path / "3"]
    assert Path("result").read_text() == "data"
    assert Path("latest/result").read_text() == "new"


def test_folders_are_numbered_and_the_newest_has_a_link(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("a file")
    (tmp_path / "notes").mkdir()
    assert [new_folder(tmp_path).name for _ in range(2)] == ["8", "9"]
    assert (tmp_path / "latest").resolve() == tmp_path / "9"
    with run_folder(tmp_path) as empty:
        assert (tmp_path / "latest").resolve() == empty
    assert not empty.exists()
    assert (tmp_path / "latest").resolve() == tmp_path / "9"
    (tmp_path / "mine").mkdir()
    for out in (tmp_path / "a" / "b", tmp_path / "mine"):
        with run_folder(out):
            pass
    assert not (tmp_path / "a").exists()
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("elsewhere")])
def test_another_thing_called_latest_stays(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "latest")
    before = os.lstat(tmp_path / "latest")
    new_folder(tmp_path)
    assert os.lstat(tmp_path / "latest").st_ino == before.st_ino


def test_what_holds_nothing_can_be_written_to(tmp_path: Path) -> None:
    empty, pipe, dangling = tmp_path / "empty", tmp_path / "pipe", tmp_path / "dangling"
    empty.touch()
    os.mkfifo(pipe)
    dangling.symlink_to("nowhere")
    for path in (None, Path("-"), Path("/dev/null"), empty, pipe, tmp_path / "a" / "b.json"):
        check_new_file("--json", path)
    assert not list((tmp_path / "a").iterdir())
    write_new_file("--json", empty, "text")
    assert empty.read_text() == "text"
    for path in (empty, tmp_path, dangling, Path("/dev/null/x")):
        with pytest.raises(OutputError, match=rf"--json {path}: .* name another one"):
            check_new_file("--json", path)


def test_a_full_disk_is_named_though_a_failed_write_names_no_file(tmp_path: Path) -> None:
    async def write() -> None:
        with Path("/dev/full").open("w", buffering=1) as file:
            file.write("a line\n")

    with pytest.raises(Unavailable, match=rf"^{tmp_path}: No space left on device; .* make room"):
        common.run(write(), tmp_path)


def test_a_result_that_finds_no_room_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), common.one_line_errors(), Path("/dev/full").open("w") as file:
        file.write("text")
    assert capsys.readouterr().err == "railweave: a result: No space left on device\n"


def test_a_number_that_another_run_has_just_taken_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "numbers", lambda _: [])  # the list from before the other run's start
    new_folder(tmp_path)
    assert new_folder(tmp_path).name == "2"
