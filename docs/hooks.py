# SPDX-License-Identifier: Apache-2.0
"""Generates the reference of the commands when mkdocs builds the site."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click
from typer.main import get_command

from railweave import cli

COMMANDS_MARK = "<!-- generated: commands -->"


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replace the mark in a page by the generated part."""
    return markdown.replace(COMMANDS_MARK, "\n".join(commands())) if COMMANDS_MARK in markdown else markdown


def commands() -> Iterator[str]:
    """Yield the help of each command as Markdown."""
    for name, _ in cli.COMMANDS:
        command = get_command(cli.build(name)).commands[name]  # type: ignore[attr-defined]
        context = typer.Context(command, info_name=f"railweave {name}")
        yield get_docs_for_click(obj=command, ctx=context, indent=1, name=f"railweave {name}")
