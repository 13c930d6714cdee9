# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import python

import railweave
from railweave.experiments.errors import OptionError
from railweave.topologies.errors import LabError


def test_every_public_name_is_there() -> None:
    for name in railweave.__all__:
        assert getattr(railweave, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = railweave.nothing


@pytest.mark.parametrize(("given", "refused"), [({"rate": 5}, "rate '5'"), ({"loss": 1.5}, "loss '1.5'")])
def test_a_lab_takes_numbers_as_text(given: dict[str, Any], refused: str) -> None:
    with pytest.raises(OptionError, match=refused):
        railweave.lab(rails="tcp", **given)


@pytest.mark.parametrize("variable", ["RAILWEAVE_CONTROLLER", "RAILWEAVE_CLUSTER"])
def test_a_rank_makes_no_lab(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv(variable, "set")
    with pytest.raises(LabError, match=r"in rank 3 of a job.*below `if __name__ == \"__main__\":`"):
        railweave.lab()


@pytest.mark.parametrize("rails", [["ina", "tpc"], ["tpc"], "tc", "tcp0", "tcp,ina,", "", []])
def test_a_labs_job_names_planes_in_full(rails: str | list[str], tmp_path: Path) -> None:
    bed = railweave.lab(rails=["ina", "tcp"], out=str(tmp_path))
    with pytest.raises(railweave.InvalidOption, match="expected one or more of ina, tcp; correct the name"):
        bed.run(["true"], rails=rails)
    with pytest.raises(railweave.InvalidOption, match="a share for rail 'ina': expected one of tcp"):
        bed.run(["true"], rails="tcp", shares={"ina": 1.0})


def test_importing_railweave_is_cheap() -> None:
    code = "import sys, railweave; print(*sorted({'numpy', 'grpc', 'railweave._native'} & set(sys.modules)))"
    assert python("-P", "-c", code).stdout.split() == []
