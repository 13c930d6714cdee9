# SPDX-License-Identifier: Apache-2.0
"""Programs as machine code: the cache, and refusals. Tests of programs run them interpreted and compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from vectors.case import case

from railweave.switch import compiler
from railweave.switch.compiler import Background, NotCompiled, compiled

small = case("digests").pipeline


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "railweave" / "programs"


def script(path: Path, *lines: str) -> str:
    """Make a compiler that only knows its version, and then runs these lines."""
    path.write_text("\n".join(("#!/bin/sh", '[ "$1" = --version ] && exit', *lines)) + "\n")
    path.chmod(0o700)
    return str(path)


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the end of a compiler's script that copies the library of the small program."""
    folder = tmp_path_factory.mktemp("built")
    compiled(small().native, folder=folder)
    [library] = folder.iterdir()
    return f'while [ "$1" != -o ]; do shift; done; exec cp {library} "$2"'


def test_a_program_is_compiled_once_per_processor(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copying: str
) -> None:
    """Threads that come later wait for the first. The library fits only its program."""
    broken = tmp_path / "broken"
    monkeypatch.setenv("CXX", script(tmp_path / "c++", f"[ -e {broken} ] && exit 1", "sleep 0.5", copying))
    started: list[object] = []
    threads = [threading.Thread(target=compiled, args=(small().native, started.append)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 1
    [library] = cache.iterdir()
    assert library.suffix == ".so"
    other = case("state").pipeline()
    with pytest.raises(ValueError, match="not compiled from this plan"):
        other.native.use(str(library))
    with pytest.raises(ValueError, match="no-such"):
        other.native.use(str(cache / "no-such.so"))
    broken.touch()
    compiled(small().native)
    monkeypatch.setattr(compiler, "_processor", lambda: "another one")
    with pytest.raises(NotCompiled):
        compiled(small().native)


def test_a_folder_that_others_may_write_is_not_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(NotCompiled, match="others may write"):
        compiled(small().native)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("RAILWEAVE_COMPILE", "0", "RAILWEAVE_COMPILE is 0"),
        ("CXX", "no-such-compiler", "no compiler 'no-such-compiler': expected"),
        ("CXX", "false", "false failed: exit status 1"),
    ],
)
def test_what_is_missing_is_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(NotCompiled, match=message):
        compiled(small().native)
    assert not list(cache.glob("*.so"))


def test_a_switch_that_ends_ends_its_compiler(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler of this test waits for input that does not end."""
    reads = tmp_path / "reads"
    os.mkfifo(reads)
    monkeypatch.setenv("CXX", script(tmp_path / "compiler", f"echo here > {reads}", f"cat {reads}"))
    background = Background(small().native)
    with reads.open() as waiting:  # until the compiler runs
        waiting.readline()
    assert background.state == "interpreted, being compiled"
    background.stop()
    background.join()
    assert background.state.startswith("interpreted: ")
    assert not list(cache.glob("*.so"))


def test_a_process_may_end_while_programs_are_translated(cache: Path) -> None:
    script = (
        "import pathlib, sys\n"
        "from railweave.switch.compiler import Background\n"
        "from railweave.switch.pipeline import Pipeline\n"
        "engine = Pipeline.load(pathlib.Path(sys.argv[1]).read_bytes()).native\n"
        "alive = [Background(engine) for _ in range(3)]\n"
    )
    program = Path(__file__).parents[2] / "p4src/build/bmv2/lanes256/railweave.json"
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script, program], check=True, timeout=60)


def test_the_compiler_has_limited_memory(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", script(tmp_path / "compiler", "ulimit -v >&2", "exit 1"))
    with pytest.raises(NotCompiled, match=f"failed: {2 << 20}: expected .* 2 GiB of memory"):
        compiled(small().native)


def test_libraries_that_were_used_longest_ago_make_room(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copying: str
) -> None:
    monkeypatch.setenv("CXX", script(tmp_path / "c++", copying))
    compiled(small().native)
    [library] = cache.iterdir()
    size = library.stat().st_size
    for number, name in enumerate(("old.so", "new.so")):
        (cache / name).write_bytes(bytes(size))
        os.utime(cache / name, (number, number))
    monkeypatch.setattr(compiler, "_MOST_CACHE", 3 * size)
    os.utime(library, (0, 0))
    compiled(small().native)  # used again: not the oldest any more
    monkeypatch.setattr(compiler, "_processor", lambda: "another one")
    compiled(small().native)
    kept = {path.name for path in cache.iterdir()}
    assert {library.name, "new.so"} < kept
    assert len(kept) == 3
