# SPDX-License-Identifier: Apache-2.0
"""The documentation is right: the site builds, and all links, commands, programs and names exist."""

import ast
import importlib
import inspect
import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, python
from document_commands import commands, fenced, inline, parse, unknown

import railweave
from railweave.experiments.accounting import BYTE_CLASSES
from railweave.experiments.claims import Claim
from railweave.experiments.contenders import Contender
from railweave.experiments.measures import MEASURES
from railweave.experiments.program import testbed
from railweave.experiments.records import Record, Sample
from railweave.experiments.scenario import Scenario, Workload
from railweave.hosts.metrics import RankCollector
from railweave.hosts.reports import GroupReport, RailReport, SentBytes, Stats
from railweave.switch.inspect.text import LOSSES

REFERENCE = ROOT / "docs" / "reference"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
BESIDE_THE_SITE = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("[!.]*/*/README.md")),
]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
CODE = ("benchmarks", "controller", "experiments", "hosts", "p4src", "railweave", "switch", "topologies")
VARIABLE = re.compile(r"\bRAILWEAVE_[A-Z]+(?:_[A-Z]+)*\b")
OBJECTS = {"comm": railweave.Communicator, "lab": testbed.Testbed}  # by the names that pages use


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def per_page(found: Any) -> list[Any]:
    """Return a test's parameters: each item that was found on a page, with the page's name."""
    return [
        pytest.param(thing, id=f"{name_of(page)}-{n}")
        for page in PAGES
        for n, thing in enumerate(found(page))
    ]


# ------------------------------------------------------------ the site


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    # Without --quiet, which hides warnings from --strict as well.
    built = python("-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path, cwd=ROOT, env=environment)
    assert "WARNING" not in built.stderr, built.stderr
    assert "railweave bench all-reduce" in (tmp_path / "reference" / "cli.html").read_text()
    api = (tmp_path / "reference" / "python.html").read_text()
    for name in railweave.__all__:
        assert f'id="railweave.{name}"' in api, f"the page of the Python API lacks railweave.{name}"
    fetched = re.findall(
        r"<(?:link rel=.stylesheet. href|script src|img src)=.(https?://[^\"'> ]*)",
        (tmp_path / "index.html").read_text(),
    )
    assert not fetched, "a page must need no other site"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub and mkdocs give to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", BESIDE_THE_SITE)
def test_links_outside_the_site(name: str) -> None:
    page = ROOT / name
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name} links to {path}, which is not there"
        assert not anchor or anchor in anchors(target), f"{name} links to {path}#{anchor}: no such heading"


# ------------------------------------------------------------ commands


def test_commands_are_found() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 50


@pytest.mark.parametrize("words", per_page(commands))
def test_a_command_is_parsed(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the check of --json makes the file's folder
    parse(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_in_prose_exist(page: Path) -> None:
    for words in inline(page):
        assert not unknown(words), f"{name_of(page)}: railweave {' '.join(words)}"


# ------------------------------------------------------------ programs


def check_imports(node: ast.Import | ast.ImportFrom) -> None:
    """Import the railweave modules of an import statement, and check that its names exist."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            if alias.name.split(".")[0] == "railweave":
                importlib.import_module(alias.name)
        elif (node.module or "").split(".")[0] == "railweave":
            module = importlib.import_module(node.module or "")
            assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


def check_attributes(node: ast.Attribute) -> None:
    """Check that attributes of `railweave`, of a communicator and of a lab exist."""
    names = [node.attr]
    value: ast.expr = node.value
    while isinstance(value, ast.Attribute):
        names.insert(0, value.attr)
        value = value.value
    if not isinstance(value, ast.Name):
        return
    if value.id == "railweave":
        found: Any = railweave
        for name in names:
            assert hasattr(found, name), f"railweave.{'.'.join(names)}: no {name}"
            found = getattr(found, name)
    elif value.id in OBJECTS:
        kind = OBJECTS[value.id]
        there = hasattr(kind, names[0]) or f"self.{names[0]} = " in inspect.getsource(kind)
        assert there, f"{value.id}.{names[0]}: {kind.__name__} has no such attribute"


@pytest.mark.parametrize("program", per_page(lambda page: fenced(page.read_text(), "python", "py")))
def test_a_program_compiles_and_its_names_exist(program: str) -> None:
    if re.search(r"^(import|from) (railweave\.)?torch", program, re.MULTILINE):
        pytest.importorskip("torch")
    compile(program, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    nodes = list(ast.walk(ast.parse(program)))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            check_imports(node)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            check_attributes(node)


# ------------------------------------------------------------ names in tables


def code_names(page: str) -> set[str]:
    """Return the words in code font in the tables of a page."""
    rows = re.findall(r"^\|.*$", (REFERENCE / page).read_text(), re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def variables() -> set[str]:
    """Return the environment variables that the code reads."""
    python = [path for folder in CODE for path in (ROOT / folder).glob("**/*.py")]
    found = {variable for path in python for variable in VARIABLE.findall(path.read_text())}
    for path in (ROOT / "native").glob("*/*.?pp"):
        if path.parent.name != "fuzz":  # a tool of the tests
            found |= set(re.findall(r'getenv\("(RAILWEAVE_\w+)"', path.read_text()))
    return found


def metrics() -> set[str]:
    ranks = RankCollector("job", 0, lambda: Stats(()), lambda: ())
    source = (ROOT / "controller" / "metrics.py").read_text()
    return {metric.name for metric in ranks.collect()} | set(re.findall(r'"(railweave_\w+)"', source))


@pytest.mark.parametrize(
    ("page", "pattern", "names"),
    [("environment.md", VARIABLE.pattern, variables), ("counters.md", r"railweave_\w+", metrics)],
)
def test_a_table_lists_exactly_the_names_of_the_code(
    page: str, pattern: str, names: Callable[[], set[str]]
) -> None:
    assert {name for name in code_names(page) if re.fullmatch(pattern, name)} == names()


def counters() -> set[str]:
    """Return the counts of agents, the columns of tables, and the actions that the P4 programs count."""
    counted = [field.name for report in (RailReport, GroupReport, SentBytes) for field in fields(report)]
    folders = ("p4src/stages", "p4src/netreduce", "algorithms/atp")
    programs = [ROOT / folder / "decide.p4" for folder in folders]
    actions = [re.findall(r'@name\("\.(\w+)"\)\s*action', source.read_text()) for source in programs]
    assert min(map(len, actions)) > 5
    columns = {*BYTE_CLASSES, "others", "unexplained", "never left", *LOSSES}
    return columns.union(counted, *actions)


def fields_of_files() -> set[str]:
    kinds = (Record, Sample, Claim, Scenario, Contender, Workload)
    return {*MEASURES, *(field.name for kind in kinds for field in fields(kind))}


@pytest.mark.parametrize(("page", "names"), [("counters.md", counters), ("files.md", fields_of_files)])
def test_names_are_on_the_page(page: str, names: Callable[[], set[str]]) -> None:
    assert sorted(names() - code_names(page)) == []
