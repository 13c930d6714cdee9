# SPDX-License-Identifier: Apache-2.0
"""Golden vectors: files with the steps of a program and the answers of the real BMv2."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import finsy as fy
from compressed import unpacked
from vectors.steps import Step, decode, encode

from railweave.switch.pipeline import Pipeline

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A recorded case. Its files lie side by side: NAME.p4, .json.gz, .p4info.txtpb.gz, .vectors.json"""

    source: Path

    @property
    def name(self) -> str:
        """The name, FEATURE/NAME."""
        return f"{self.source.parent.name}/{self.source.stem}"

    @property
    def json(self) -> Path:
        """The program, compiled to JSON by p4c."""
        return unpacked(self.source.with_suffix(".json"))

    @property
    def p4info(self) -> Path:
        """The program's P4Info."""
        return unpacked(self.source.with_suffix(".p4info.txtpb"))

    @functools.cached_property
    def schema(self) -> fy.P4Schema:
        """The schema of P4Info and JSON, read once."""
        return fy.P4Schema(self.p4info, self.json)

    def pipeline(self) -> Pipeline:
        """Load the program into the embedded engine."""
        return Pipeline.load(self.json.read_bytes())

    @property
    def vectors(self) -> Path:
        """The file of the steps with their results."""
        return self.source.with_suffix(".vectors.json")

    def load(self) -> list[tuple[Step, Any]]:
        """Return the steps and BMv2's answers."""
        return [(decode(item), _result(item)) for item in self._read()["steps"]]

    def save(self, results: list[tuple[Step, Any]]) -> None:
        """Write the steps and their results, one step per line. Keep the sentence about them."""
        about = json.dumps(self._read()["about"] if self.vectors.exists() else self.source.stem)
        lines = [json.dumps(encode(s) | ({} if r is None else {"result": r})) for s, r in results]
        self.vectors.write_text(f'{{"about": {about},\n"steps": [\n' + ",\n".join(lines) + "\n]}\n")

    def _read(self) -> dict[str, Any]:
        return json.loads(self.vectors.read_text())  # type: ignore[no-any-return]


def _result(item: dict[str, Any]) -> Any:
    result = item.get("result")
    return [tuple(frame) for frame in result] if item["step"] == "packet" else result


def cases() -> list[Case]:
    """Return all cases, sorted by name."""
    return [Case(path) for path in sorted(FOLDER.glob("*/*.p4"))]


def case(name: str) -> Case:
    """Return the only case with this name, of any feature."""
    [found] = [item for item in cases() if item.source.stem == name]
    return found
