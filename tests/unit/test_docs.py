# SPDX-License-Identifier: Apache-2.0
"""The documentation site builds, and links lead somewhere: pages, anchors, files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
BESIDE_THE_SITE = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("*/*/README.md")),
]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    assert "railweave bench all-reduce" in (tmp_path / "reference" / "cli.html").read_text()
    fetched = re.findall(
        r"<(?:link rel=.stylesheet. href|script src|img src)=.(https?://[^\"'> ]*)",
        (tmp_path / "index.html").read_text(),
    )
    assert not fetched, "a page must need no other site"


def anchors(page: Path) -> set[str]:
    """The anchors that a forge and mkdocs give to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", BESIDE_THE_SITE)
def test_links_outside_the_site(name: str) -> None:
    page = ROOT / name
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name} links to {path}, which is not there"
        assert not anchor or anchor in anchors(target), f"{name} links to {path}#{anchor}: no such heading"
