# SPDX-License-Identifier: Apache-2.0
"""Compiles the program for Tofino, on v1model, for the tests: `python -m dataplane.tna` in tests/."""

from __future__ import annotations

import hashlib
from typing import Final

from compressed import pack
from dataplane.programs import FOLDER, TNA

from railweave.p4src.artifacts import source_hashes
from railweave.p4src.compile import compile_program

SOURCE: Final = FOLDER / "tna.p4"
RECORD: Final = FOLDER / "tna.sha256"
OTHERS: Final = ("netreduce",)
"""Folders of sources that the program does not include."""


def sources() -> str:
    """Return the hashes of all sources of the program."""
    return f"{hashlib.sha256(SOURCE.read_bytes()).hexdigest()}  {SOURCE.name}\n{source_hashes(*OTHERS)}"


if __name__ == "__main__":
    for program in TNA:
        source = f"../tests/dataplane/programs/{SOURCE.name}"
        made = FOLDER / program.json.name, FOLDER / program.p4info.name
        compile_program(source, *made, f"-DLANES={program.lanes}")
        pack(*made)
    RECORD.write_text(sources(), encoding="utf-8")
