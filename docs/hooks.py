# SPDX-License-Identifier: Apache-2.0
"""Generates the reference of the commands when mkdocs builds the site."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import typer
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click
from typer.main import get_command

from railweave import cli
from railweave.help_texts import KEEP_LINES

COMMANDS_MARK = "<!-- generated: commands -->"
KEPT_LINES = re.compile(rf"^{KEEP_LINES}\n(Examples:\n)?((?:.+\n)+)", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replace the mark in a page by the generated part."""
    return markdown.replace(COMMANDS_MARK, "\n".join(commands())) if COMMANDS_MARK in markdown else markdown


def commands() -> Iterator[str]:
    """Yield the help of each command as Markdown."""
    for name, _ in cli.COMMANDS:
        command = get_command(cli.build(name)).commands[name]  # type: ignore[attr-defined]
        for each in getattr(command, "commands", {}).values():
            each.short_help = each.help.partition("\n\n")[0]  # otherwise cut after 45 characters
        context = typer.Context(command, info_name=f"railweave {name}")
        text = get_docs_for_click(obj=command, ctx=context, indent=1, name=f"railweave {name}")
        yield KEPT_LINES.sub(_as_block, text)


def _as_block(kept: re.Match[str]) -> str:
    """Return lines that must not be wrapped as a block of code."""
    title = "**Examples**:\n\n" if kept[1] else ""
    return f"{title}```{'bash' if kept[1] else 'text'}\n{textwrap.dedent(kept[2])}```\n"
