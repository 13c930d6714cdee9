# SPDX-License-Identifier: Apache-2.0
"""Labs made by a notebook, and by a file that every rank imports to find its worker function."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "lab.md"
GUARD = 'if __name__ == "__main__":'
DEADLINE_S = 120.0


def example() -> str:
    """Return the documentation's example of a lab."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if GUARD in block)
    return str(found)


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = folder / "mine.py"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    assert GUARD in example()
    done = run(tmp_path, example())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "lab" / "1" / "topology.yaml").exists()


def test_without_its_guard_no_rank_makes_a_lab(tmp_path: Path) -> None:
    done = run(tmp_path, example().replace(GUARD, "if True:"))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "railweave.lab was called in rank " in last
    assert GUARD in last
    assert [path.name for path in tmp_path.rglob("topology.yaml")] == ["topology.yaml"]


def test_a_lab_of_a_notebook_needs_no_guard(tmp_path: Path) -> None:
    text = "import railweave\nwith railweave.lab(hosts=2, rails='tcp') as lab:\n    "
    cell = f"{text}print(lab.run(['sh', '-c', 'echo $RANK']).wait().output)\n"
    done = subprocess.run(
        [sys.executable, "-c", f"exec(compile({cell!r}, '<cell>', 'exec'))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.stdout.strip() == "[['0'], ['1']]", done.stderr


def test_each_lab_has_its_folder(tmp_path: Path) -> None:
    cell = "import railweave\n" + "with railweave.lab(hosts=2, rails='tcp'): pass\n" * 2
    subprocess.run([sys.executable, "-c", cell], cwd=tmp_path, check=True, timeout=DEADLINE_S)
    found = sorted(path.parent.name for path in tmp_path.glob("out/lab/[0-9]/topology.yaml"))
    assert found == ["1", "2"]
