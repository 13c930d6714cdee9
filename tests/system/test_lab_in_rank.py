# SPDX-License-Identifier: Apache-2.0
"""Labs made by a notebook, and by a file that every rank imports to find its worker function.

test_public_api.py tests that a rank makes no lab.
"""

from __future__ import annotations

import re
from pathlib import Path

from commands import ROOT, python

DOCUMENT = ROOT / "docs" / "howto" / "lab.md"
GUARD = 'if __name__ == "__main__":'


def example() -> str:
    """Return the documentation's example of a lab."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if GUARD in block)
    return str(found)


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    assert GUARD in example()
    (tmp_path / "mine.py").write_text(example())
    python("mine.py", cwd=tmp_path)
    assert (tmp_path / "out" / "lab" / "1" / "topology.yaml").exists()


def test_labs_of_a_notebook_need_no_guard_and_have_a_folder_each(tmp_path: Path) -> None:
    text = "import railweave\nfor _ in range(2):\n  with railweave.lab(hosts=2, rails='tcp') as lab:\n    "
    cell = f"{text}print(lab.run(['sh', '-c', 'echo $RANK']).wait().output)\n"
    done = python("-c", f"exec(compile({cell!r}, '<cell>', 'exec'))", cwd=tmp_path)
    assert done.stdout.splitlines() == ["[['0'], ['1']]"] * 2, done.stderr
    found = sorted(path.parent.name for path in tmp_path.glob("out/lab/[0-9]/topology.yaml"))
    assert found == ["1", "2"]
