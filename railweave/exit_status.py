# SPDX-License-Identifier: Apache-2.0
"""Set the exit status of every command, and the form of its error."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

import typer

from railweave.errors import LACKING, UserError, explain
from railweave.outputs import NO_ROOM

UNWRITABLE = (*NO_ROOM, errno.EROFS, errno.EACCES)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors that users can correct into one line on stderr and the exit status of their kind."""
    try:
        yield
    except UserError as error:
        raise _ended(str(error), error.status) from error
    except MemoryError as error:
        text = explain("no memory is left", "more free memory", "take fewer hosts or smaller sizes")
        raise _ended(text, LACKING) from error
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        raise _ended(f"{error.filename or 'a result'}: {error.strerror}", LACKING) from error


def _ended(text: str, status: int) -> typer.Exit:
    typer.echo(f"railweave: {text}", err=True)
    return typer.Exit(status)
