# SPDX-License-Identifier: Apache-2.0
"""`make clean` and the shell's environment remove only files that the setup has made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import ROOT, run

from railweave import shell_environment
from railweave.shell_environment import EnvironmentFailed


def clean(folder: Path) -> set[str]:
    """Run `make clean` in a folder with the Makefile, and return the remaining files."""
    shutil.copy(ROOT / "Makefile", folder)
    run("make", "-C", folder, "clean")
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {"Makefile"}


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("data")


def test_clean_leaves_results_and_what_others_have_made(tmp_path: Path) -> None:
    kept = {"out/demo/1/trace.json", "build/mine", ".venv/bin/python"}
    put(tmp_path, "build/native/a.o", "build/programs/b.so", ".venv/stamps/programs", *kept)
    assert clean(tmp_path) == kept


def test_clean_removes_the_environment_that_bootstrap_has_made(tmp_path: Path) -> None:
    put(tmp_path, "build/native.log", ".venv/stamps/made", ".venv/bin/python")
    assert clean(tmp_path) == set()
    assert not (tmp_path / "build").exists()


def test_a_folder_that_is_no_environment_of_the_shell_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shell"
    monkeypatch.setattr(shell_environment, "FOLDER", folder)
    put(folder, "mine")
    with pytest.raises(
        EnvironmentFailed, match="holds something that railweave has not made: expected a new or empty folder"
    ):
        shell_environment.ensure(lambda _: None)
    assert (folder / "mine").read_text() == "data"
    (folder / "mine").unlink()
    for _ in range(2):  # the second time, the folder holds an unfinished environment
        shell_environment._empty_folder()
        put(folder, "bin/python")
    assert shell_environment.python() is None
