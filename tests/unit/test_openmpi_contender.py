# SPDX-License-Identifier: Apache-2.0
"""The script that starts Open MPI's daemons in the hosts' namespaces."""

from __future__ import annotations

from pathlib import Path

from commands import run

from railweave.experiments.contenders.openmpi import entering


def script(tmp_path: Path) -> Path:
    """Return the script with `echo` instead of the command that enters a namespace, which needs root."""
    path = tmp_path / "enter"
    path.write_text(entering({"10.1.0.1": ["echo", "h1"], "10.1.0.2": ["echo", "h2"]}))
    return path


def test_a_nodes_command_line_is_run_by_a_shell_in_its_namespace(tmp_path: Path) -> None:
    done = run("sh", script(tmp_path), "10.1.0.2", "orted -mca x", '"y z"')
    assert done.stdout == 'h2 unshare --uts sh -c hostname node-1 && orted -mca x "y z"\n'


def test_an_unknown_node_is_named(tmp_path: Path) -> None:
    done = run("sh", script(tmp_path), "10.1.0.3", "orted", status=1)
    assert done.stderr == "there is no node 10.1.0.3\n"
