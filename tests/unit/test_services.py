# SPDX-License-Identifier: Apache-2.0
"""The systemd units of examples/cluster, and the rank numbers that real launchers give."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from commands import ROOT, run

from railweave.controller import cli as controller
from railweave.switch import cli as switch

EXAMPLES = ROOT / "examples" / "cluster"
UNITS = ("railweave-controller.service", "railweave-switch.service")
SAY = "from railweave.hosts.options import options_from as o; r = o(rails='tcp@lo', controller='x:1'); "
SAY += "print(f'rank {r.rank} of {r.world_size}')"


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_units(unit: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (EXAMPLES / unit).read_text()
    command = tmp_path / "railweave"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    copy = tmp_path / unit
    copy.write_text(text.replace("/opt/railweave/.venv/bin/railweave", str(command)))
    assert run("systemd-analyze", "verify", copy).stderr == ""


def test_the_units_start_commands_that_there_are() -> None:
    lines = [line for unit in UNITS for line in (EXAMPLES / unit).read_text().splitlines()]
    _, *of_controller = next(line for line in lines if "ExecStart" in line and "controller" in line).split()
    assert of_controller == ["controller", "--cluster", "/etc/railweave/cluster.yaml", "--verbose"]
    assert controller.app.registered_commands[0].name == "controller"
    assert switch.app.registered_callback is not None


@pytest.mark.parametrize(
    ("launcher", "options"),
    [
        ("mpirun", ["-n", "2", "--allow-run-as-root", "--oversubscribe"]),
        ("srun", ["-n", "2"]),
        ("torchrun", ["--standalone", "--nproc-per-node", "2", "--no-python"]),
    ],
)
def test_launchers_that_are_here_number_the_ranks(launcher: str, options: list[str]) -> None:
    found = shutil.which(launcher) or shutil.which(launcher, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{launcher} is not on PATH")
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = run(found, *options, sys.executable, "-c", SAY, env=clean)
    said = sorted(re.findall(r"rank \d of \d", done.stdout))  # mpirun may join lines
    assert said == ["rank 0 of 2", "rank 1 of 2"], done.stderr
