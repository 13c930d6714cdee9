# SPDX-License-Identifier: Apache-2.0
"""Finds the `railweave` commands in Markdown pages, and parses them as the command line does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from railweave import cli

FENCE = re.compile(r"^ *```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^|\n\n)(?P<body>(?: {4}[^\n]*(?:\n|$)|\n(?= {4}))+)")
INLINE = re.compile(r"`(railweave [^`]+)`")
SHELLS = ("", "sh", "bash", "shell", "console")
SEPARATORS = set("();<>|&·")
VARIABLE = re.compile(r"\$\{?\w+\}?")
ASSIGNMENT = re.compile(r"\w+=.*")


def fenced(text: str, *languages: str) -> list[str]:
    """Return the fenced code blocks in one of these languages."""
    return [match["body"] for match in FENCE.finditer(text) if match["language"] in languages]


def commands(page: Path) -> list[list[str]]:
    """Return the words of each railweave command in a page's code blocks, without `railweave` itself."""
    text = page.read_text()
    blocks = [*fenced(text, *SHELLS), *(match["body"] for match in INDENTED.finditer(FENCE.sub("", text)))]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [command for line in lines if "railweave" in line for command in _in_line(line)]


def _in_line(line: str) -> Iterator[list[str]]:
    """Yield the railweave commands of a shell line. Each variable is replaced by 1."""
    lexer = shlex.shlex(
        VARIABLE.sub("1", line.strip().removeprefix("$ ")), posix=True, punctuation_chars=True
    )
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a line of output with an apostrophe
        return
    part: list[str] = []
    for word in [*words, ";"]:
        if word and set(word) <= SEPARATORS:
            while part and (part[0] in ("sudo", "do", "then") or ASSIGNMENT.fullmatch(part[0])):
                del part[0]
            if part[:1] == ["railweave"] and part[1:] and not part[1].endswith(":"):  # no message
                yield part[1:]
            part = []
        else:
            part.append(word)


def inline(page: Path) -> list[list[str]]:
    """Return the words of each `railweave …` in a page's prose."""
    found = INLINE.findall(FENCE.sub("", page.read_text()))
    return [shlex.split(command.replace("'", "").replace('"', ""))[1:] for command in found]


def part_of(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words name, and its arguments. KeyError if there is no such command."""
    part: Any = get_command(cli.build(words[0])).commands[words[0]]  # type: ignore[attr-defined]
    rest = words[1:]
    while rest and rest[0] in getattr(part, "commands", {}):
        part, rest = part.commands[rest[0]], rest[1:]
    return part, rest


def parse(words: list[str]) -> None:
    """Parse a command with its options. Raises click's errors if an option is unknown or has no value."""
    if words[0].startswith("-"):  # an option of `railweave` itself
        get_command(cli.build("")).make_context("railweave", words, resilient_parsing=True)
        return
    part, rest = part_of(words)
    try:
        part.make_context(" ".join(words), rest)
    except typer.BadParameter as error:
        if "does not exist" not in error.message:  # a page may name a file that only a reader has
            raise


def unknown(words: list[str]) -> list[str]:
    """Return the unknown options of a command. Values and words after `--` are not checked."""
    if not words or words[0].startswith("-") or not words[0].islower():  # a placeholder such as COMMAND
        return []
    if words[0] not in dict(cli.COMMANDS):
        return words[:1]
    part, rest = part_of(words)
    parts = [part, *getattr(part, "commands", {}).values()]  # the words may leave out the subcommand
    options = [name for one in parts for each in one.params for name in (*each.opts, *each.secondary_opts)]
    known = {"-h", "--help", *options}
    given = rest[: rest.index("--")] if "--" in rest else rest
    names = [
        word.partition("=")[0] for word in given if re.match(r"-[\w-]", word) and not re.match(r"-\d", word)
    ]
    return [name for name in names if name not in known]
