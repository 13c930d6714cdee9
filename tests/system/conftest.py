# SPDX-License-Identifier: Apache-2.0
"""System tests run the real command in real namespaces. They are skipped where this is impossible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from system.cluster_document import TRAIN, Prepared, blocks, cabled, carry_out
from system.command import Command
from system.machines import Machine

from railweave.topologies.errors import LabError
from railweave.topologies.lab.namespaces import require_tools
from railweave.topologies.lab.record import sweep


@pytest.fixture(autouse=True, scope="session")
def _able() -> None:
    try:
        require_tools()
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """Carry out all steps of docs/howto/cluster.md before the training."""
    with cabled(tmp_path_factory.mktemp("cluster")) as made:
        yield made, {block.title: carry_out(block, made) for block in blocks() if block.title != TRAIN}


@pytest.fixture
def cluster_machines(cluster: Prepared) -> Mapping[str, Machine]:
    """Return the cluster's machines. A test that breaks something repairs it."""
    return cluster[0]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Return a function that starts `railweave` with arguments, and kill these commands after the test.

    The fixture inserts its own options before `--`. With `alone`, the command keeps its records apart, so the
    labs of other tests do not clean up after it. Only commands with `alone` in the same test do.
    """
    running: list[Command] = []

    records = tmp_path / "records"
    records.mkdir()

    def start_it(*arguments: str, alone: bool = False) -> Command:
        place = arguments.index("--") if "--" in arguments else len(arguments)
        out = ("--out", str(tmp_path / "out"))
        running.append(Command((*arguments[:place], *out, *arguments[place:]), records if alone else None))
        return running[-1]

    yield start_it
    for command in running:
        command.process.kill()
        command.process.communicate()
    sweep(records)
