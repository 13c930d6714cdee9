# SPDX-License-Identifier: Apache-2.0
"""Every error that a user reads has three parts: the given value, the expected value, and the remedy."""

from __future__ import annotations

import ast
import asyncio
import functools
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from railweave._native.agent import Failure, FailureKind
from railweave.controller import errors as of_controller
from railweave.controller import service, southbound
from railweave.errors import UserError, explain
from railweave.hosts import bootstrap, errors, failures, rails
from railweave.hosts.interfaces import Interface
from railweave.hosts.options import RailSpec
from railweave.p4src.artifacts import artifact
from railweave.switch import errors as of_switch
from railweave.switch.inspect import client
from railweave.switch.p4runtime.errors import DO, Code, invalid
from railweave.switch.p4runtime.errors import Refused as RefusedByP4Runtime
from railweave.switch.pipeline import Pipeline
from railweave.topologies.model import Switch

ROOT = Path(__file__).parents[2]
FOLDERS = ("railweave", "benchmarks", "hosts", "controller", "topologies", "switch", "experiments", "p4src")
PARTS = re.compile(r"(?P<given>.+): expected (?P<expected>.+); (?P<do>.+)", re.DOTALL)
MOST_LINES = 3


def failed(kind: FailureKind) -> None:
    failures.raise_failure(Failure(kind, 1, "it ended", "tcp"))


def unconnected() -> None:
    agent: Any = SimpleNamespace(
        connect_tcp=lambda *_: [1], failure=lambda: None, last_refusal=lambda _: "refused"
    )
    at = Interface("eth0", "10.1.0.1", "02:00:00:00:00:01")
    opening = rails.Opening(RailSpec("tcp", "tcp", "eth0"), 0, at, 1)
    rails._connect_tcp(agent, opening, [], 0.1)


def unanswered() -> None:
    bootstrap.join("127.0.0.1:1", job="job", rank=0, size=1, rails=[], deadline_s=0.05)


def unsupported() -> None:
    raise of_switch.UnsupportedConstruct("a saturating field", "program.p4(7)")


def no_program() -> None:
    with client.SwitchClient("127.0.0.1:1", 1) as asked:
        raise asked._no_program()


def no_switch() -> None:
    with client.SwitchClient("127.0.0.1:1", 1) as asked:
        asked.p4info()


def not_connected() -> None:
    switch = Switch("s", "127.0.0.1:1")
    asyncio.run(southbound.SwitchLink(switch, artifact(256), awaited).check())


async def awaited() -> None:
    """Replace the `connected` of a link."""


# Errors whose texts the static check below cannot read, because other code completes them.
PROVOKED: list[tuple[type[UserError], Callable[[], object]]] = [
    (errors.CollectiveMismatch, lambda: failed(FailureKind.MISMATCH)),
    (errors.PeerLost, lambda: failed(FailureKind.PEER_LOST)),
    (errors.RailDown, lambda: failed(FailureKind.RAIL_DOWN)),
    (errors.RailweaveError, lambda: failed(FailureKind.INTERNAL)),
    (errors.JoinTimeout, unconnected),
    (errors.ControllerUnreachable, unanswered),
    (of_controller.SwitchUnavailable, not_connected),
    (of_switch.InvalidProgram, lambda: Pipeline.load(b"{}")),
    (of_switch.UnsupportedConstruct, unsupported),
    (client.NoProgram, no_program),
    (of_switch.NoAnswer, no_switch),
]


@pytest.mark.parametrize(("kind", "provoke"), PROVOKED)
def test_an_error_has_three_parts(kind: type[UserError], provoke: Callable[[], object]) -> None:
    with pytest.raises(kind) as error:
        provoke()
    assert error.type is kind
    text = str(error.value)
    assert PARTS.fullmatch(text), text
    assert len(text.splitlines()) <= MOST_LINES


# ------------------------------------------------------------ all texts in the sources

# An error with fewer than three arguments passes on a message that already has the three parts.
FORWARDED = {
    ("benchmarks/controller.py", "f'--k: {error}'"): "a TopologyError",
    ("benchmarks/switch.py", "f'--lanes {lanes}: {error}'"): "a ValueError of artifact(), made by explain()",
    ("controller/fabric.py", "switch.link.problem"): "a SwitchUnavailable",
    ("controller/fabric.py", "switches[nic.switch].link.problem"): "a SwitchUnavailable",
    ("controller/server.py", "str(error)"): "a ValueError of artifact() and Fabric, made by explain()",
    ("controller/southbound.py", "self.problem"): "a SwitchUnavailable, or made by explain()",
    (
        "experiments/allreduce/run.py",
        "f'contender {contender.name!r}: {obstacle}'",
    ): "an obstacle, made by explain()",
    ("experiments/program/fault_script.py", "f'{words!r}: {error.args[0]}'"): "an error of the topology",
    ("experiments/scenario.py", "str(error)"): "a TopologyError",
    ("hosts/bootstrap.py", "text"): "the controller's answer",
    ("hosts/bootstrap.py", "f'controller at {controller}: {text}'"): "the controller's answer",
    ("hosts/communicator.py", "f'progress_cpus: {error}'"): "the native code's, with what to do",
    (
        "hosts/communicator.py",
        "f'{late} (this rank expects {options.world_size} ranks, because {options.size_from} is "
        "{options.world_size})'",
    ): "the controller's answer",
    ("hosts/costs_file.py", "f\"costs file {path}: {text[:300]}{'…' * (len(text) > 300)}\""): "of explain()",
    ("hosts/options.py", "str(error)"): "a TopologyError",
    ("hosts/sequence.py", "str(error)"): "the native code's, with all parts",
    ("railweave/commands/shell.py", "f'{missing}, or push one with --config'"): "a NoProgram",
    ("switch/daemon.py", "f'{options.program}: {refusal.message}'"): "a refusal of the P4Runtime server",
    ("switch/inspect/client.py", "details"): "the switch's answer",
    ("switch/options.py", "f'--tls-key {error}'"): "a TopologyError of private_file()",
}
# The classes whose constructors add the parts themselves.
OWN_PARTS = {"PeerLost", "RailDown", "InvalidProgram", "UnsupportedConstruct"}
# A text of another function has two parts, and this text adds the third.
COMPLETED = {"controller/southbound.py", "hosts/bootstrap.py", "railweave/commands/why.py"}
OTHER_ERRORS = "switch/p4runtime/"  # here, Refused is the server's answer


@functools.cache
def sources() -> dict[str, ast.Module]:
    """Return the parsed sources by file name."""
    tracked = subprocess.run(
        ["git", "ls-files", *(f"{folder}/*.py" for folder in FOLDERS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [file for file in tracked.stdout.split() if not file.startswith(OTHER_ERRORS)]
    return {file: ast.parse((ROOT / file).read_text()) for file in files}


def last(name: ast.expr) -> str:
    return ast.unparse(name).rpartition(".")[2]


def error_names() -> set[str]:
    """Return the names of all classes of user's errors."""
    classes = [
        node for tree in sources().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    found, before = {UserError.__name__}, 0
    while len(found) > before:
        before = len(found)
        found |= {node.name for node in classes if found & set(map(last, node.bases))}
    return found


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield each construction of a user's error, with the file's name."""
    known = error_names() - OWN_PARTS
    for file, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and last(node.func) in known:
                yield file, node


def test_every_text_in_the_sources_has_three_parts() -> None:
    forwarded = set()
    for file, call in calls():
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        at = f"{file}:{call.lineno}: {ast.unparse(call)}"
        if any(isinstance(argument, ast.Starred) for argument in arguments):
            continue  # a tuple of three parts
        if len(arguments) >= 3:
            texts = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
            assert "" not in texts, at
            continue
        if any(keyword.arg == "do" for keyword in call.keywords):
            assert file in COMPLETED, at
            continue
        key = (file, ast.unparse(arguments[0]))
        if "explain(" not in key[1]:
            assert key in FORWARDED, at
            forwarded.add(key)
    assert forwarded == FORWARDED.keys()


def test_bootstrap_has_three_parts() -> None:
    done = subprocess.run([ROOT / "bootstrap", "train"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert PARTS.fullmatch(done.stderr.strip()), done.stderr


# ------------------------------------------------------------ answers by gRPC


def test_every_refusal_of_p4runtime_ends_with_what_to_do() -> None:
    assert set(DO) == set(Code) - {Code.OK, Code.UNKNOWN}
    for code, do in DO.items():
        assert RefusedByP4Runtime(code, "index 9 of 'counts' is not in 0…7").message.endswith(f"; {do}")
    assert invalid("nine", "give eight").message == "nine; give eight"


def test_every_error_of_the_controller_has_a_status() -> None:
    assert set(service.STATUS) == set(of_controller.RequestError.__subclasses__())
    assert grpc.StatusCode.UNKNOWN not in service.STATUS.values()


def test_explain_joins_the_parts_that_there_are() -> None:
    assert (
        explain("--hosts 1", "2 or more", "name more hosts")
        == "--hosts 1: expected 2 or more; name more hosts"
    )
    assert explain("no answer", do="wait") == "no answer; wait"
