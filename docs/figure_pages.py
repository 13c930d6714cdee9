# SPDX-License-Identifier: Apache-2.0
"""Pages that mkdocs generates: a page for each figure of the papers, and the table of verdicts.

The text is that of the figure's file and of its Markdown text. The numbers are those of the reference run, in
papers/reference.json. `python -m railweave.experiments.publish` writes that file and the plots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from railweave.experiments.claims import DERIVED, READ, Claim, Verdict, range_text
from railweave.experiments.figures import Figure, Publication, publications
from railweave.experiments.publish import FOLDER, PLOTS, FigureRun, Reference
from railweave.experiments.report.page import MEANINGS, count, measured_text

TABLE_MARK, RUN_MARK, MEANINGS_MARK = (
    f"<!-- generated: {name} -->" for name in ("verdicts", "reference run", "meanings")
)
NOT_RUN = "not run in the reference run"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the figures' pages to the section Papers of the navigation."""
    (section,) = [entry["Papers"] for entry in config.nav or [] if "Papers" in entry]
    for paper in publications():
        section.append({paper.name: [{f"{each.name}: {each.title}": path(each)} for each in paper.figures]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each figure."""
    reference = Reference.load()
    for paper in publications():
        for figure in paper.figures:
            content = "\n".join(page(figure, paper, reference))
            files.append(File.generated(config, path(figure), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replace the marks of generated parts by these parts."""
    if TABLE_MARK not in markdown:
        return markdown
    reference = Reference.load()
    markdown = markdown.replace(TABLE_MARK, "\n".join(overview(reference)))
    markdown = markdown.replace(
        MEANINGS_MARK, "\n".join(f"- *{name}*: {text}." for name, text in MEANINGS.items())
    )
    return markdown.replace(RUN_MARK, machine(reference))


def path(figure: Figure) -> str:
    """Return the address of a figure's page below docs."""
    return f"papers/{figure.name}.md"


# ------------------------------------------------------------ all figures


def overview(reference: Reference) -> Iterator[str]:
    """Yield a section per paper, with a row per figure."""
    for paper in publications():
        yield f"## {paper.name}\n"
        yield f"*{paper.title}* ({paper.published}). {paper.about}\n"
        yield "| figure | claim | measured | paper | min | verdict |\n|---|---|---|---|---|---|"
        for figure in paper.figures:
            yield row(figure, reference.figures.get(figure.name))
        yield ""


def row(figure: Figure, run: FigureRun | None) -> str:
    """Return a figure's row: its main claim with the verdict, and the verdicts on all claims."""
    claim = figure.headline
    every = judged(figure, run)
    found = every.get(claim.id)
    verdict = f"**{found.verdict}**" if found else "only in the full set"
    cells = (
        f"[{figure.name}: {figure.title}]({figure.name}.md)",
        claim.text,
        number(found),
        claim.paper.text if claim.paper else "-",
        minutes(run) if run else "-",
        f"{verdict} (all claims: {tally(every.values())})" if run else NOT_RUN,
    )
    return table_row(cells)


def minutes(run: FigureRun) -> str:
    """Return the estimated time of a figure's run."""
    return f"{run.minutes:.0f}" if run.minutes >= 1 else "< 1"


def machine(reference: Reference) -> str:
    """Return the conditions of the reference run."""
    runs = reference.figures.values()
    if not runs:
        return "There is no reference run yet."
    kernels, commits, dates = (
        ", ".join(sorted({getattr(run, name) for run in runs})) for name in ("kernel", "commit", "date")
    )
    kinds = Counter("quick set" if run.quick else "full set" for run in runs)
    size = ", ".join(f"{count(number, 'figure')} with the {kind}" for kind, number in kinds.items())
    return (
        f"The reference run measured {size}. The machine has {count(reference.cores, 'core')} and "
        f"{reference.memory_gib:.0f} GiB of memory. Linux: {kernels}. Commit: {commits}. Date: {dates}. "
        "[reference.json](reference.json) has all numbers."
    )


# ------------------------------------------------------------ one figure


def page(figure: Figure, paper: Publication, reference: Reference) -> Iterator[str]:
    """Yield the lines of a figure's page."""
    run = reference.figures.get(figure.name)
    intro, _, rest = figure.text.partition("\n## ")
    yield f"# {figure.name}: {figure.title}\n\n{intro.rstrip()}\n"
    yield f"Paper: *{paper.title}* ({paper.published}).\n"
    if (FOLDER / PLOTS / f"{figure.name}.svg").exists():
        yield f"![{figure.title}]({PLOTS}/{figure.name}.svg)\n"
    yield f"{figure.about}\n"
    yield "## Claims\n"
    if run:
        yield f"{tally(judged(figure, run).values())}. In a claim, x is the measured number.\n"
    else:
        yield f"This figure was {NOT_RUN}. In a claim, x is the measured number.\n"
    yield "| claim | paper | expected | measured | verdict |\n|---|---|---|---|---|"
    for claim in figure.claims:
        yield claim_row(claim, judged(figure, run).get(claim.id), run)
    yield "\n### Sources and reasons\n"
    yield from reasons(figure.claims)
    run_it = f"Run it\n\n    railweave reproduce {figure.name}"
    yield f"\n## {rest.strip() or run_it}\n"
    yield conditions(run)


def conditions(run: FigureRun | None) -> str:
    """Return the conditions of a figure's run."""
    if run is None:
        return ""
    kind = "quick" if run.quick else "full"
    return (
        f"## Conditions\n\nThe numbers are from the [reference run](index.md#reference-run), with the {kind} "
        f"set, on commit {run.commit}, {run.date}. Estimated time in minutes: {minutes(run)}."
    )


def judged(figure: Figure, run: FigureRun | None) -> dict[str, Verdict]:
    """Return the verdicts by claim. A claim that the run did not plan has none."""
    results = run.claims if run else {}
    return {each.id: results[each.id].judge(each) for each in figure.claims if each.id in results}


def claim_row(claim: Claim, found: Verdict | None, run: FigureRun | None) -> str:
    """Return a claim's row."""
    unit = f" {claim.unit}" if claim.unit else ""
    lost = "only in the full set" if run else NOT_RUN
    verdict = f"**{found.verdict}**" + (f": {found.reason}" if found.reason else "") if found else lost
    return table_row(
        (
            claim.text,
            claim.paper.text if claim.paper else "-",
            f"{range_text(claim.expected)}{unit}",
            number(found),
            verdict,
        )
    )


def number(found: Verdict | None) -> str:
    """Return a measured number with its interval."""
    if not found or not found.measured:
        return "-"
    value, interval = measured_text(found.measured)
    return f"**{value}**{interval}" + (f" {found.claim.unit}" if found.claim.unit else "")


def reasons(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield the sources of the paper's numbers and the reasons of the expected ranges, each once."""
    papers = [each.paper for each in claims if each.paper]
    marks = {READ: "read", DERIVED: "derived"}
    sources = [f"Paper, {each.text}: {each.source} ({marks[each.mark]})." for each in papers]
    expected: dict[str, list[str]] = {}
    for each in claims:
        ranges = expected.setdefault(each.expected_because, [])
        unit = f" {each.unit}" if each.unit else ""
        if (text := f"{range_text(each.expected)}{unit}") not in ranges:
            ranges.append(text)
    yield from (f"- {source}" for source in dict.fromkeys(sources))
    yield from (f"- Expected, {'; '.join(ranges)}: {because}." for because, ranges in expected.items())


def tally(found: Iterable[Verdict]) -> str:
    """Return the number of claims by verdict."""
    counts = Counter(each.verdict for each in found)
    return ", ".join(f"{counts[name]} {name}" for name in MEANINGS if counts[name])


def table_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
