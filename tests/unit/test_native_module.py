# SPDX-License-Identifier: Apache-2.0
"""Without the native module or a package, a command ends in one line that says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import python

from railweave import native_module
from railweave.cli import INSTALL
from railweave.errors import LACKING

# Without the built module, Python finds only the type stubs: a package without a file.
FINDER = """
import sys
from importlib.machinery import ModuleSpec

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "railweave._native":
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = ["/nowhere"]
            %s

sys.meta_path.insert(0, Finder())
"""
NOT_BUILT = FINDER % "return spec"
NOT_LOADED = FINDER % 'raise ImportError("libibverbs.so.1: cannot open", name=name, path="_native.so")'
MAIN = "sys.argv[0] = 'railweave'\nfrom railweave.cli import main\nmain()"


def complaint(broken: str, folder: Path, command: str) -> str:
    """Run a command without a part of the installation, and return the one line that it prints."""
    (line,) = python("-c", broken + MAIN, *command.split(), cwd=folder, status=LACKING).stderr.splitlines()
    return line


@pytest.mark.parametrize(
    "command",
    ["demo", "plan 4M", "switch -i 1@lo", "doctor --cluster cluster.yaml"],
)
def test_a_command_that_needs_it_says_so_in_one_line(tmp_path: Path, command: str) -> None:
    line = complaint(NOT_BUILT, tmp_path, command)
    assert line.startswith("railweave: the native module is not built for this Python (")
    assert line.endswith(native_module.REMEDY)


def test_doctor_knows_that_the_demo_cannot_run(tmp_path: Path) -> None:
    done = python("-c", NOT_BUILT + MAIN, "doctor", "--json", "-", cwd=tmp_path, status=LACKING)
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert found["ok"] is False
    assert "this machine cannot run the demo: see the remedies" in done.stderr
    assert "is not built for this Python" in checks["native module"]["detail"]
    assert "./bootstrap run" in checks["native module"]["remedy"]
    assert not checks["the demo's modules"]["present"]


def test_a_library_that_it_misses_is_named(tmp_path: Path) -> None:
    assert "libibverbs.so.1" in complaint(NOT_LOADED, tmp_path, "plan 4M")


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    line = complaint("import sys\nsys.modules['networkx'] = None\n", tmp_path, "controller --help")
    assert "networkx" in line
    assert line.endswith(INSTALL)
