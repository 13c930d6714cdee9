# SPDX-License-Identifier: Apache-2.0
"""The command line: fast and complete help, and the doctor's findings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import invoke, python, railweave

from railweave import cli
from railweave.commands import checks
from railweave.commands.common import with_live_port

COMMANDS = [name for name, _ in cli.COMMANDS]


def test_help_lists_all_commands_and_imports_none() -> None:
    script = (
        "import sys; sys.argv = ['railweave', '--help']\n"
        "from railweave.cli import main\n"
        "try: main()\n"
        "finally: print('heavy:', sorted({'numpy', 'grpc', 'rich.table', 'mininet'} & set(sys.modules)))\n"
    )
    done = python("-c", script, status=None)
    for name in COMMANDS:
        assert f"  {name} " in done.stdout
    assert "heavy: []" in done.stdout


@pytest.mark.parametrize(
    ("shell", "typed", "expected"),
    [
        ("bash", "railweave bench all-r", "all-reduce"),
        ("bash", "railweave plan --hos", "--hosts"),
        ("zsh", "railweave bench fail", "failover"),
        ("fish", "railweave switch re", "registers"),
    ],
)
def test_shells_complete_commands_of_commands(shell: str, typed: str, expected: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    variables = words if shell == "bash" else {"_TYPER_COMPLETE_ARGS": typed}
    variables |= {"_RAILWEAVE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    script = "import sys; sys.argv = ['railweave']; from railweave.cli import main; main()"
    done = python("-c", script, status=None, env={**os.environ, **variables})
    assert expected in done.stdout


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("--live", "--live=0"),
        ("--live 8000 -- x", "--live 8000 -- x"),
        ("--live=8000", "--live=8000"),
        ("--live --hosts 2 -- x --live", "--live=0 --hosts 2 -- x --live"),
        ("-- x --live", "-- x --live"),
    ],
)
def test_the_live_page_needs_no_port(given: str, read: str) -> None:
    assert with_live_port(given.split()) == read.split()


def test_doctor_tells_the_same_to_people_and_machines() -> None:
    done = railweave("doctor", "--json", "-", status=None)
    value = json.loads(done.stdout)  # JSON is alone on stdout
    assert done.returncode == (0 if value["ok"] else 3)
    assert value["ok"] is all(check["present"] for check in value["checks"] if check["needed"])
    for check in value["checks"]:
        assert check["name"].split()[0] in done.stderr
        assert check["remedy"]


def test_what_is_absent_is_found_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {finding.name: finding for finding in checks.run_checks()}
    assert not found["mnexec"].present
    assert found["mnexec"].remedy == "apt-get install mininet"
    assert not found["simple_switch_grpc"].needed
    assert all(finding.detail and finding.expected and finding.remedy for finding in found.values())


def test_a_tree_of_the_topology_is_printed(tmp_path: Path) -> None:
    said = invoke(f"topo planes --hosts 2 --rails ina,tcp --save {tmp_path}/net.svg").stdout
    assert "s-ina  P4 switch, P4Runtime 10.255.0.200:9559" in said
    assert "port 2: h2  h2-tcp  10.2.0.2  02:00:00:02:00:02" in said
    assert "<svg" in (tmp_path / "net.svg").read_text()


def test_a_topology_survives_its_file(tmp_path: Path) -> None:
    first = invoke(f"topo planes --rate 1G --save {tmp_path}/net.yaml").stdout
    assert first.splitlines()[:-1] == invoke(f"topo file {tmp_path}/net.yaml").stdout.splitlines()
