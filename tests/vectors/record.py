# SPDX-License-Identifier: Apache-2.0
"""Records the answers of the real BMv2: `python -m vectors.record [FEATURE/NAME…]` in tests/.

It needs p4c-bm2-ss and simple_switch_grpc on PATH.

A case is FEATURE/NAME.p4 with its steps in NAME.vectors.json: a sentence about them, then one step per line.
A step is a packet, or the call of a method of `vectors.steps.Controlled`. Steps of a new case lack results.

The recorder compiles the program and keeps the result compressed. It starts a BMv2 and does the steps one by
one: a packet leaves before the next packet enters. Then it writes the results beside the steps, which
tests/unit/test_vectors.py replays on the embedded engine. BMv2's P4Runtime cannot read registers: let the
program write important values into packets. Results must not depend on time or `random`.

The recorder refuses meaningless recordings. At least half of the packets must come out, except in DROPS. The
results of packets must differ from each other. A second run must give the same results.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from compressed import pack
from vectors import bmv2
from vectors.case import FOLDER, Case, cases
from vectors.steps import Packet, Step

DROPS = {"control", "digests"}  # a miss drops the packet


class Refused(Exception):
    """The case does not compile, or its recording would be meaningless."""


def compile_program(source: Path) -> tuple[Path, Path]:
    """Compile with p4c. Return JSON and P4Info beside the source. Raise Refused with p4c's error text."""
    json, p4info = source.with_suffix(".json"), source.with_suffix(".p4info.txtpb")
    command = ["p4c-bm2-ss", source.name, "-o", str(json), "--p4runtime-files", str(p4info)]
    if include := os.environ.get("P4C_INCLUDE"):
        command += ["-I", include]
    # Use a relative name, because p4c writes the name into the JSON.
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=source.parent)
    if done.returncode != 0:
        raise Refused(f"p4c: {done.stderr}")
    return json, p4info


def run(case: Case, todo: list[Step]) -> list[tuple[Step, Any]]:
    """Do the steps on a fresh BMv2. Return each step with its answer."""
    with bmv2.running(case.p4info, case.json) as switch:
        return [(step, switch.do(step)) for step in todo]


def record(case: Case) -> str:
    """Record one case. Return a line that summarizes the recording."""
    pack(*compile_program(case.source))
    todo = [step for step, _ in case.load()]
    results = run(case, todo)
    frames = [result for step, result in results if isinstance(step, Packet)]
    answered = sum(map(bool, frames))
    if 2 * answered < len(frames) and case.source.stem not in DROPS:
        raise Refused(f"{case.name}: only {answered} of {len(frames)} packets come out")
    if not frames or len({str(result) for result in frames}) < 2:
        raise Refused(f"{case.name}: every packet gives the same")
    for (step, first), (_, second) in zip(results, run(case, todo), strict=True):
        if first != second:
            raise Refused(f"{case.name}: {step} gave {first}, and {second} the second time")
    case.save(results)
    return f"{case.name}: {len(todo)} steps, {len(frames)} packets, {answered} of them come out"


def main(names: list[str]) -> int:
    """Record the named cases, or all cases. Return 1 if a case is refused."""
    if missing := bmv2.missing():
        raise SystemExit(missing)
    chosen = [Case(FOLDER / f"{name}.p4") for name in names] if names else cases()
    failures = 0
    for case in chosen:
        try:
            print(record(case), flush=True)
        except Refused as refusal:
            failures += 1
            print(refusal, file=sys.stderr, flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
