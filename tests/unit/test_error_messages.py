# SPDX-License-Identifier: Apache-2.0
"""Every error that a user reads has three parts: the given value, the expected value, and the remedy."""

from __future__ import annotations

import ast
import asyncio
import importlib
import re
from collections.abc import Callable, Iterator

import grpc
import pytest
from commands import ROOT, run

from railweave import shell_environment
from railweave._native.agent import Failure, FailureKind
from railweave.controller import errors as of_controller
from railweave.controller import quotas, service, southbound
from railweave.errors import UserError, explain
from railweave.experiments import hosts as experiment_hosts
from railweave.experiments.live import server as live
from railweave.hosts import bootstrap, errors, failures
from railweave.hosts.options import RailSpec
from railweave.p4src.artifacts import artifact
from railweave.switch import errors as of_switch
from railweave.switch.p4runtime.errors import DO, Code, invalid
from railweave.switch.p4runtime.errors import Refused as RefusedByP4Runtime
from railweave.switch.pipeline import Pipeline
from railweave.topologies.errors import WorkerFailed
from railweave.topologies.model import Switch

FOLDERS = (
    "railweave",
    "benchmarks",
    "hosts",
    "controller",
    "topologies",
    "switch",
    "experiments",
    "p4src",
    "algorithms",
)
PARTS = re.compile(r"(?P<given>.+): expected (?P<expected>.+); (?P<do>.+)", re.DOTALL)
MOST_LINES = 3
OLD_WORDS = re.compile(r"\b(likewise|alike|hence|thereof|whoever|nobody|anew|told|lent)\b")


def failed(kind: FailureKind) -> None:
    failures.raise_failure(Failure(kind, 1, "it ended", "tcp"))


def unanswered() -> None:
    bootstrap.join("127.0.0.1:1", job="job", rank=0, size=1, rails=[], deadline_s=0.05)


def without_railweave() -> None:
    found = WorkerFailed(1, experiment_hosts.NO_RAILWEAVE, "exit status 0", "read the log")
    raise experiment_hosts.explained(found, ["sh"])


def unsupported() -> None:
    raise of_switch.UnsupportedConstruct("a saturating field", "program.p4(7)")


def not_connected() -> None:
    switch = Switch("s", "127.0.0.1:1")
    asyncio.run(southbound.SwitchLink(switch, artifact(256), awaited).check())


async def awaited() -> None:
    """Replace the `connected` of a link."""


# Classes with other constructors, and texts that another function completes or that no other test reads.
PROVOKED: dict[type[UserError], Callable[[], object]] = {
    errors.InvalidOption: lambda: RailSpec.parse("tcp"),
    errors.CollectiveMismatch: lambda: failed(FailureKind.MISMATCH),
    errors.PeerLost: lambda: failed(FailureKind.PEER_LOST),
    errors.RailDown: lambda: failed(FailureKind.RAIL_DOWN),
    errors.RailweaveError: lambda: failed(FailureKind.INTERNAL),
    errors.ControllerUnreachable: unanswered,
    WorkerFailed: without_railweave,
    live.RequestRefused: lambda: live._check_origin({}, "/"),
    shell_environment.EnvironmentFailed: lambda: shell_environment._run(["false"], "success", "try again"),
    of_controller.ControllerError: lambda: quotas.read(["many"], None, quotas.Quota()),
    of_controller.SwitchUnavailable: not_connected,
    of_switch.InvalidProgram: lambda: Pipeline.load(b"{}"),
    of_switch.UnsupportedConstruct: unsupported,
}


@pytest.mark.parametrize("kind", PROVOKED, ids=lambda kind: kind.__name__)
def test_an_error_has_three_parts(kind: type[UserError]) -> None:
    with pytest.raises(kind) as error:
        PROVOKED[kind]()
    assert error.type is kind
    text = str(error.value)
    assert PARTS.fullmatch(text), text
    assert len(text.splitlines()) <= MOST_LINES


def subclasses(kind: type[UserError]) -> Iterator[type[UserError]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("railweave."):
            yield each
        yield from subclasses(each)


# ------------------------------------------------------------ all texts in the sources

# An error with fewer than three arguments passes on a message that already has the three parts.
FORWARDED = {
    ("benchmarks/controller.py", "f'--k: {error}'"): "a TopologyError",
    ("benchmarks/switch.py", "f'--lanes {lanes}: {error}'"): "a ValueError of artifact(), made by explain()",
    ("controller/algorithms.py", "switch.link.problem"): "a SwitchUnavailable",
    ("controller/fabric.py", "switch.link.problem"): "a SwitchUnavailable",
    ("controller/fabric.py", "switches[nic.switch].link.problem"): "a SwitchUnavailable",
    ("controller/server.py", "str(error)"): "a ValueError of artifact() and Fabric, made by explain()",
    ("controller/southbound.py", "self.problem"): "a SwitchUnavailable, or made by explain()",
    (
        "experiments/allreduce/run.py",
        "f'contender {contender.name!r}: {obstacle}'",
    ): "an obstacle, made by explain()",
    ("experiments/contenders/__init__.py", "str(error)"): "an AlgorithmError",
    ("experiments/fault_script.py", "f'{words!r}: {error.args[0]}'"): "an error of the topology",
    ("experiments/scenario.py", "str(error)"): "a TopologyError",
    ("hosts/bootstrap.py", "text"): "the controller's answer",
    ("hosts/bootstrap.py", "f'controller at {controller}: {text}'"): "the controller's answer",
    ("hosts/endpoints.py", "f'rail {rail.spec.name!r}: {error}'"): "an AlgorithmError",
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
    ("switch/daemon.py", "f'{options.program}: {error}'"): "an InvalidProgram",
    ("switch/inspect/client.py", "details"): "the switch's answer",
    ("switch/options.py", "f'--tls-key {error}'"): "a TopologyError of private_file()",
    ("topologies/planes.py", "f'rail {rail!r}: {error}'"): "an AlgorithmError",
}
# The constructors of these classes add the parts.
OWN_PARTS = {"PeerLost", "RailDown", "InvalidProgram", "UnsupportedConstruct"}
# A text of another function has two parts, and this text adds the third.
COMPLETED = {"controller/southbound.py", "hosts/bootstrap.py", "railweave/commands/why.py"}
OTHER_ERRORS = "switch/p4runtime/"  # here, Refused is the server's answer


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield each construction of a user's error, with the file's name."""
    known = {kind.__name__ for kind in subclasses(UserError)} - OWN_PARTS
    tracked = run("git", "ls-files", *(f"{folder}/*.py" for folder in FOLDERS), cwd=ROOT)
    for file in (each for each in tracked.stdout.split() if not each.startswith(OTHER_ERRORS)):
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in known:
                yield file, node


def test_every_text_in_the_sources_has_three_parts() -> None:
    importlib.import_module("railweave.cli")  # with all classes of errors
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


def test_no_text_has_old_words() -> None:
    for file, call in calls():
        for part in ast.walk(call):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                assert not OLD_WORDS.search(part.value), f"{file}:{part.lineno}: {part.value}"


def test_bootstrap_has_three_parts() -> None:
    done = run(ROOT / "bootstrap", "train", status=1)
    assert PARTS.fullmatch(done.stderr.strip()), done.stderr


# ------------------------------------------------------------ answers by gRPC


def test_every_refusal_of_p4runtime_ends_with_what_to_do() -> None:
    assert set(DO) == set(Code) - {Code.OK, Code.UNKNOWN}
    for code, do in DO.items():
        assert RefusedByP4Runtime(code, "index 9 of 'counts' is not in 0…7").message.endswith(f"; {do}")
    assert invalid("nine", "give eight").message == "nine; give eight"


def test_every_error_of_the_controller_has_a_status() -> None:
    kinds = set(subclasses(of_controller.RequestError))
    assert set(service.STATUS) == kinds
    assert grpc.StatusCode.UNKNOWN not in service.STATUS.values()


def test_explain_joins_the_parts_that_there_are() -> None:
    assert (
        explain("--hosts 1", "2 or more", "name more hosts")
        == "--hosts 1: expected 2 or more; name more hosts"
    )
    assert explain("no answer", do="wait") == "no answer; wait"
