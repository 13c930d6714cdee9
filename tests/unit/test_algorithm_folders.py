# SPDX-License-Identifier: Apache-2.0
"""Folders of algorithms: their manifest, the search for them, and whether they are compiled."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from railweave import sdk
from railweave.errors import parts
from railweave.p4src.config import CONFIG
from railweave.sdk import library
from railweave.sdk.compile import hashes, is_current
from railweave.sdk.manifest import JOBS, PORTS, Manifest
from railweave.sdk.new import make
from railweave.topologies.named import named

KEYS = {"name": '"mine"', "summary": '"text"', "udp_port": "1024", "lanes": "[8]", "header_bytes": "4"}
LAST_PORTS = (1 << 16) - PORTS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a new algorithm."""
    make(tmp_path / "mine")
    return tmp_path / "mine"


def fails(call: Callable[[], object], *given: str) -> None:
    """Require that a call fails with an error of three parts whose first one has these texts."""
    with pytest.raises(sdk.AlgorithmError) as error:
        call()
    found = parts(str(error.value))
    assert all(found)
    for text in given:
        assert text in found[0]


def manifest_of(**keys: str | None) -> str:
    return "\n".join(f"{key} = {value}" for key, value in (KEYS | keys).items() if value is not None)


@pytest.mark.parametrize("port", [1024, LAST_PORTS])
def test_a_manifest_with_its_least_keys(folder: Path, port: int) -> None:
    (folder / "algorithm.toml").write_text(manifest_of(udp_port=str(port)))
    manifest = Manifest.load(folder)
    assert (manifest.name, manifest.lanes, manifest.program) == ("mine", (8,), "main.p4")
    ports = {of(job) for of in (manifest.rank_port, manifest.server_port) for job in range(JOBS)}
    assert ports == set(range(port, port + PORTS))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("colour", '"red"'),
        ("", "no TOML"),
        ("", "\xff"),
        *((key, None) for key in KEYS),
        *(("name", value) for value in ("5", '"other"')),
        *(("udp_port", value) for value in ('"1024"', "true", "1025", "992", str(LAST_PORTS + PORTS))),
        *(("udp_port", str(CONFIG[own] // PORTS * PORTS)) for own in ("INA_UDP_PORT", "ROCE_UDP_PORT")),
        *(("lanes", value) for value in ("8", '["8"]', "[]", "[8, 0]")),
        ("header_bytes", "-1"),
        ("program", '"absent.p4"'),
        ("accuracy", '"good"'),
        ("survives", '["death"]'),
        *((key, value) for key in ("dtypes", "networks") for value in ('["other"]', "[]")),
        ("operations", "[]"),
    ],
)
def test_a_bad_key_of_a_manifest_is_an_error(folder: Path, key: str, value: str | None) -> None:
    file = folder / "algorithm.toml"
    file.write_text(manifest_of(**{key: value}), "latin1")
    fails(lambda: Manifest.load(folder), str(file), key)
    file.unlink()
    fails(lambda: Manifest.load(folder), str(file), "No such file")


def test_a_name_that_is_not_of_a_module_is_an_error(folder: Path) -> None:
    (folder / "algorithm.toml").write_text(manifest_of(name='"my-own"'))
    other = folder.rename(folder.with_name("my-own"))
    fails(lambda: Manifest.load(other), "name is 'my-own'")
    fails(lambda: make(folder.with_name("my-new")), "my-new")


def test_a_new_algorithm_is_a_copy_of_sum_with_its_name(folder: Path) -> None:
    files = {path.relative_to(library.OWN / "sum") for path in (library.OWN / "sum").rglob("*")}
    copied = {path.relative_to(folder) for path in folder.rglob("*")}
    assert copied == {path for path in files if "__pycache__" not in path.parts}
    assert Manifest.load(folder).summary == sdk.find("sum").manifest.summary
    fails(lambda: make(folder), f"{folder} exists")


def test_an_algorithm_is_found_by_its_name_its_path_and_its_entry_point(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = ("mine", "mine"), ("absent", "no_such_package"), ("module", "json.decoder")
    points = EntryPoints(EntryPoint(name, package, library.GROUP) for name, package in pairs)
    monkeypatch.setattr(library, "entry_points", points.select)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.chdir(folder.parent)
    for text, wanted in (("sum", library.OWN / "sum"), ("mine", folder), ("./mine", folder)):
        found = sdk.find(text)
        assert (found.folder, found.endpoint.__module__) == (wanted, f"{found.package}.endpoint")
    assert {"atp", "sum", "mine"} <= set(sdk.names())
    fails(lambda: sdk.find("absent"), "no_such_package", "absent")
    fails(lambda: sdk.find("module"), "json.decoder", "module")
    with pytest.raises(sdk.AlgorithmError, match=r"'sun': expected one of .*atp.*sum.*, or the path"):
        sdk.find("sun")


def test_folders_of_the_same_name_keep_their_own_modules(folder: Path, tmp_path: Path) -> None:
    source = (folder / "endpoint.py").read_text()
    found = []
    for text in ("one", "two"):
        copy = shutil.copytree(folder, tmp_path / text / "mine")
        (copy / "packet.py").write_text(f"VALUE = {text!r}\n")
        (copy / "endpoint.py").write_text(f"{source}    from . import packet\n")
        found.append(sdk.find(str(copy)))
    assert [vars(each.endpoint)["packet"].VALUE for each in found] == ["one", "two"]


@pytest.mark.parametrize("text", ["", "class Endpoint: pass", "def (", "import no_such_module", None])
def test_an_endpoint_that_cannot_be_loaded_is_an_error(folder: Path, text: str | None) -> None:
    (folder / "endpoint.py").unlink()
    if text is not None:
        (folder / "endpoint.py").write_text(text)
    fails(lambda: sdk.find(str(folder)).endpoint, str(folder), "endpoint.py")


def test_other_mistakes_of_a_folder_are_errors(folder: Path) -> None:
    found, plane = sdk.find(str(folder)), named("planes", rails=["ina"], rates=[0]).planes[0]
    assert found.server is None
    fails(lambda: found.job(0, 2, {"slot": 8}), "option 'slot'")
    fails(lambda: found.job(JOBS, 2, {}), f"job {JOBS}")
    (folder / "server.py").touch()
    fails(lambda: sdk.find(str(folder)).server, "server.py")
    (folder / "control.py").write_text("def wanted(plane, jobs): return {}")
    fails(lambda: found.wanted(plane, []), "control.py", plane.switches[0].name)
    for code, text in (
        ("\n    return {}['s1']", "KeyError: 's1' (control.py, line 2)"),
        (" return 3", "TypeError: 'int' object is not iterable"),
        (" return {'s-ina': 3}", "the state of switch s-ina is 3"),
        (
            " from railweave import sdk; return {'s-ina': sdk.SwitchState(())}",
            "s-ina is SwitchState(entries=()",
        ),
    ):
        (folder / "control.py").write_text(f"def wanted(plane, jobs):{code}")
        sys.modules.pop(f"{found.package}.control")
        fails(lambda: found.wanted(plane, []), "control.py", text)
    (folder / "control.py").unlink()
    fails(lambda: found.wanted(plane, []), str(folder), "control.py")
    shutil.rmtree(folder / "build")
    with pytest.raises(sdk.AlgorithmError, match=f"railweave algorithm compile {folder}"):
        found.artifact()


@pytest.mark.parametrize(("accuracy", "bound"), [("exact", 0.0), ("bounded", 2.5), ("lossy", 2.5)])
def test_an_exact_algorithm_has_no_error(folder: Path, accuracy: str, bound: float) -> None:
    (folder / "algorithm.toml").write_text(manifest_of(accuracy=f'"{accuracy}"'))
    with (folder / "endpoint.py").open("a") as source:
        source.write("    @staticmethod\n    def error_bound(given):\n        return 2.5\n")
    assert sdk.find(str(folder)).error_bound([]) == bound


@pytest.mark.parametrize("name", sdk.names())
def test_the_programs_are_those_of_their_sources(name: str) -> None:
    assert is_current(sdk.find(name)), f"run: railweave algorithm compile {name}"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("algorithm.toml", "5312", "5344"),
        ("main.p4", "//", "///"),
        ("build/lanes64/main.json", "{", "{ "),
        ("build/sources.sha256", "main", "other"),
    ],
)
def test_a_change_makes_programs_outdated(folder: Path, file: str, old: str, new: str) -> None:
    found, text = sdk.find(str(folder)), (folder / file).read_text()
    assert is_current(found)
    (folder / file).write_text(text.replace(old, new))
    assert not is_current(sdk.find(str(folder)))
    (folder / "build/sources.sha256").unlink()
    assert not is_current(found)


def test_includes_may_form_a_circle_or_be_missing(folder: Path) -> None:
    found, main = sdk.find(str(folder)), folder / "main.p4"
    main.write_text('#include "main.p4"\n#include "absent.p4"\n')
    assert not is_current(found)
    main.write_text('#include "main.p4"\n')
    assert "  main.p4\n" in hashes(found)
