# SPDX-License-Identifier: Apache-2.0
"""The tutorial, README's quick start and first use: every block of commands runs, in the order of the page.

- A block of `sh` is run by bash with -e. All blocks of a page share one shell, so `cd` and `export` last.
- A block of `python` with a title is written to that file.
- A block of `text` is output. The commands must print each of its lines, with any numbers.

Some commands set the machine up, ask for a password, change this checkout or take long: see REPLACED. The
fixture `ready` checks that `make demo` would install nothing. `make --dry-run` checks what it would run. A
shorter demo runs in its place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from railweave import native_module

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "index.md"
README = ROOT / "README.md"
BLOCK = re.compile(
    r'^```(?P<kind>sh|python|text)(?: title="(?P<title>[\w.]+)")?\n(?P<text>.*?)^```$', re.S | re.M
)
REPLACED = {
    "make demo": f"make --dry-run -C {ROOT} demo; railweave demo --hosts 2 --steps 2",
    "sudo -s": "[ $(id -u) = 0 ]  # the tests of this tier are root already",
    "export PATH=$PWD/.venv/bin:$PATH": f"[ -x {ROOT}/.venv/bin/railweave ]",
    "1_000_000": "100_000",
    "250_000": "100_000",
    "range(100)": "range(40)",
    "HOSTS = (2, 4, 6)": "HOSTS = (2, 3)",
    "lab.run(worker, 20,": "lab.run(worker, 2,",
    "2s: host link down h1 ina; 4s: repair": "300ms: host link down h1 ina; 700ms: repair",
    "--compare ring,mptcp": "--compare ring,mptcp --hosts 2 --iters 1",
}
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
UNITS = re.compile(r"\b[kMG]?bit/s|\b[kMG]?i?B\b|\b[µm]?s\b")
DEADLINE_S = 540


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    line: int
    kind: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page, in its order."""
    return [
        Block(page.count("\n", 0, match.start()) + 1, match["kind"], match["title"] or "", match["text"])
        for match in BLOCK.finditer(page)
    ]


def script(found: list[Block]) -> str:
    """Return what bash runs for the blocks of a page."""
    parts = ["set -e"]
    for block in found:
        parts.append(f"echo '# block of line {block.line}'")
        if block.kind == "python":
            assert block.title, f"the block of line {block.line} names no file"
            parts.append(f"cat > {block.title} <<'END_OF_FILE'\n{replaced(block.text)}END_OF_FILE")
        elif block.kind == "sh":
            parts.append(replaced(block.text))
    return "\n".join(parts)


def replaced(text: str) -> str:
    """Return a page's commands or program with shorter ones in place of those in REPLACED."""
    for old, new in REPLACED.items():
        text = text.replace(old, new)
    return text


def pattern(line: str) -> str:
    """Return a line of output without the parts that differ between runs: numbers, units and spaces."""
    return " ".join(UNITS.sub("unit", NUMBER.sub("0", line)).split())


def carry_out(page: str, folder: Path) -> str:
    """Run the blocks of a page in a folder, and return their output."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "110",
    }
    done = subprocess.run(
        ["bash", "-c", script(blocks(page))],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout
    said = {pattern(line) for line in done.stdout.splitlines()}
    shown = [line for block in blocks(page) if block.kind == "text" for line in block.text.splitlines()]
    missing = [line for line in shown if line.strip() not in ("", "…") and pattern(line) not in said]
    assert not missing, f"the page shows lines that were not printed: {missing}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def ready() -> None:
    """Skip the test if `make demo` would have to set the machine up first."""
    if problem := native_module.problem():
        pytest.skip(f"the environment is not ready: {problem}; run make demo once")


@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.usefixtures("ready")
def test_the_tutorial(tmp_path: Path) -> None:
    carry_out(TUTORIAL.read_text().replace("make demo\n", ""), tmp_path)  # README begins with the same demo
    assert (tmp_path / "out" / "tutorial" / "sums.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "tutorial" / "out" / "run" / "latest" / "timeline.png").exists()


@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(("title", "kinds"), [("Quick start", ["sh", "text"]), ("Use it", ["python", "sh"])])
def test_readme(title: str, kinds: list[str], tmp_path: Path) -> None:
    section = README.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    assert [block.kind for block in blocks(section)] == kinds
    carry_out(section, tmp_path)


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="# block of line 4"):
        carry_out("```sh\ntrue\n```\n```sh\nfalse\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="not printed: \\['it took 8 ms'\\]"):
        carry_out("```sh\necho it takes 7 ms\n```\n```text\nit took 8 ms\n```\n", tmp_path)


def test_every_replacement_is_on_a_page() -> None:
    pages = TUTORIAL.read_text() + README.read_text()
    assert [old for old in REPLACED if old not in pages] == []
