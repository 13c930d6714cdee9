# SPDX-License-Identifier: Apache-2.0
"""`railweave algorithm`, and failing schedules that become simple."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import invoke

from railweave import sdk
from railweave.errors import UserError
from railweave.experiments.contenders import Contender
from railweave.sdk.check import run, simplified
from railweave.sdk.check.schedules import Conditions
from railweave.topologies.planes import planes

MANY = Conditions("planes:hosts=3", 2, 2, 99, "int32", "sum", 16, 0.05, 0.2, 0.3, 100, 1, False, True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder `mine` of a new algorithm, in the working folder."""
    monkeypatch.chdir(tmp_path)
    done = invoke("algorithm new mine")
    assert done.exit_code == 0
    assert "mine/endpoint.py\n" in done.stdout
    assert done.stdout.endswith("Next: railweave algorithm check ./mine\n")
    return tmp_path / "mine"


def change(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def test_the_list_has_each_algorithm_with_its_summary_and_paper() -> None:
    done = invoke("algorithm list")
    assert done.exit_code == 0
    for line, name in zip(done.stdout.splitlines(), sdk.names(), strict=True):
        manifest = sdk.find(name).manifest
        assert line.split()[0] == name
        assert manifest.summary in line
        assert manifest.paper in line


def test_a_new_algorithm_passes_its_check(folder: Path) -> None:
    done = invoke("algorithm check ./mine --schedules 4")
    assert done.exit_code == 0
    assert "all                     4    0" in done.stdout
    assert "results were right" in done.stdout
    change(folder, "main.p4", "", "// changed\n")
    done = invoke("algorithm check ./mine --schedules 1")
    assert done.exit_code == 2
    assert "older than its sources: expected the program of these sources" in done.stderr
    for use in (lambda: planes(2, ["./mine"]), lambda: Contender("mine", "./mine").implementation()):
        with pytest.raises(UserError, match="older than its sources"):
            use()


def test_an_error_has_its_place_in_the_algorithms_files(folder: Path) -> None:
    change(folder, "endpoint.py", "[: self.size]", "[: self.nothing]")
    done = invoke("algorithm check ./mine --schedules 1")
    line = 1 + (folder / "endpoint.py").read_text().splitlines().index(
        "        return results.reshape(-1)[: self.nothing]"
    )
    assert f"has no attribute 'nothing' (endpoint.py, line {line})" in done.stdout


def test_a_failing_check_names_the_seed_the_conditions_and_how_to_repeat_it(folder: Path) -> None:
    change(folder, "endpoint.py", "[: self.size]", "[: self.size] + (self.size > 1)")
    done = invoke("algorithm check ./mine --schedules 4 --seed 7")
    assert done.exit_code == 1
    last = done.stdout.splitlines()[-3:]
    seed = last[0].split()[1]
    assert last[0].startswith(f"seed {seed} fails: WrongResult: job")
    assert last[1].startswith("it still fails with elements=2: WrongResult: job")
    assert last[2] == f"again: railweave algorithm check ./mine --schedules 1 --seed {seed}"
    repeated = invoke(last[2].removeprefix("again: railweave "))
    assert (repeated.exit_code, repeated.stdout.splitlines()[-3:]) == (1, last)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("new mine", "mine exists"),
        ("new my-own", "my-own"),
        ("check absent", "'absent'"),
        ("check ./absent", "absent/algorithm.toml"),
        ("check ./mine", "mine/build/lanes64 has no compiled program"),
        ("check", "name"),
        ("check ./mine --schedules 0", "--schedules"),
        ("forget", "forget"),
    ],
)
def test_a_mistake_is_bad_usage(folder: Path, words: str, text: str) -> None:
    shutil.rmtree(folder / "build")
    done = invoke(f"algorithm {words}")
    assert done.exit_code == 2
    assert text in done.stderr
    assert done.stdout == ""


def test_a_hang_names_the_ranks_that_wait(folder: Path) -> None:
    change(
        folder,
        "endpoint.py",
        "    def unpack(",
        "    def deadline(self):\n        return float('inf')\n\n    def unpack(",
    )
    outcome = run(sdk.find("./mine"), Conditions(loss=1.0), 5, 64)
    assert outcome.failure.startswith("HangError: at ")
    ranks = [f"rank {rank} of job 0 waits, its deadline is inf s" for rank in range(2)]
    assert outcome.failure.endswith("; ".join(ranks))


def test_a_check_without_a_lab_leaves_no_folder(folder: Path) -> None:
    assert invoke("algorithm check ./mine --schedules 1").exit_code == 0
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]


def test_a_failing_schedule_becomes_simple(folder: Path) -> None:
    change(folder, "endpoint.py", ": self.size]", ": self.size] + (self.job.options.get('slots', 0) > 2)")
    found = sdk.find("./mine")
    outcome = run(found, MANY, 5, 64)
    assert outcome.failure.startswith("WrongResult: job")
    simple = simplified(found, outcome)
    assert str(simple.conditions) == "slots=4"
    assert (simple.seed, simple.failure) == (5, run(found, simple.conditions, 5, 64).failure)


def test_simple_conditions_stay_within_the_manifest(folder: Path) -> None:
    change(folder, "algorithm.toml", 'dtypes = ["int32"]', 'dtypes = ["float32"]\noperations = ["max"]')
    found = sdk.find("./mine")
    outcome = run(found, Conditions(dtype="float32", op="max", calls=2), 5, 64)
    assert "int32 of shape (1,) in place of float32" in outcome.failure
    assert str(simplified(found, outcome).conditions) == "dtype=float32, op=max"
