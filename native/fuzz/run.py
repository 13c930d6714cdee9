# SPDX-License-Identifier: Apache-2.0
"""Builds the fuzz targets and runs each for a time: `make fuzz`, or native/fuzz/run.py [TARGET…].

With clang, libFuzzer mutates the inputs; with other compilers, driver.cpp does. Targets begin with the inputs
in corpus/TARGET. --grow adds libFuzzer's findings to these inputs and keeps the fewest inputs that reach the
same code. The target `fuzz_engine` gives hostile plans to the engine and begins with the plans of
tests/vectors. A target `fuzz_engine:FEATURE/NAME` sends hostile packets through the plan of that program and
begins with its packets in tests/vectors.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from railweave.switch.lowering import lower

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"
BUILD = ROOT / "build" / "fuzz"
PROGRAMS = ROOT / "tests" / "vectors"
MAX_BYTES = 1 << 14
ROUNDS_PER_S = 200  # least rate of the driver without libFuzzer


def build() -> bool:
    """Compile with the sanitizers. Return whether the targets use libFuzzer."""
    clang = shutil.which("clang++") or shutil.which("clang++-14")  # Debian's name without the default package
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DRAILWEAVE_FUZZ=ON"]
    configure += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    if clang:
        configure.append(f"-DCMAKE_CXX_COMPILER={clang}")
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD), "-j2"], check=True, stdout=subprocess.DEVNULL)
    return clang is not None


def targets() -> list[str]:
    """Return all targets, including one target per program for the engine on packets."""
    names = sorted(path.stem for path in HERE.glob("fuzz_*.cpp"))
    return names + [f"fuzz_engine:{path.parent.name}/{path.stem}" for path in programs()]


def programs() -> list[Path]:
    """Return the programs of the golden vectors."""
    return sorted(PROGRAMS.glob("*/*.p4"))


def plan_of(source: Path) -> bytes:
    """Lower a program to the engine's plan."""
    return lower(gzip.decompress(source.with_suffix(".json.gz").read_bytes()))[1]


def environment(target: str, folder: Path) -> dict[str, str]:
    """Return the target's environment. Write the plan of its program to the folder."""
    _, colon, program = target.partition(":")
    if not colon:
        return dict(os.environ)
    plan = folder / "plan"
    plan.write_bytes(plan_of(PROGRAMS / f"{program}.p4"))
    return os.environ | {"RAILWEAVE_FUZZ_PLAN": str(plan)}


def corpus(target: str) -> Path:
    """Return the folder with the target's inputs."""
    name, colon, _ = target.partition(":")
    return CORPUS / (f"{name}_packets" if colon else name)


def seeds(target: str, folder: Path) -> Path:
    """Make inputs from tests/vectors. Return their folder."""
    made = folder / "seeds"
    made.mkdir()
    _, colon, program = target.partition(":")
    if target == "fuzz_engine":
        for number, source in enumerate(programs()):
            made.joinpath(str(number)).write_bytes(plan_of(source))
    elif colon:
        steps = json.loads((PROGRAMS / f"{program}.vectors.json").read_text())["steps"]
        packets = [bytes.fromhex(step["data"]) for step in steps if step["step"] == "packet"]
        framed = [len(packet).to_bytes(2, "big") + packet for packet in packets]
        for number in range(0, len(framed), 10):
            made.joinpath(str(number)).write_bytes(b"".join(framed[number : number + 10]))
    return made


def run(target: str, seconds: int, libfuzzer: bool, grow: bool) -> int:
    """Run one target and return its exit status."""
    program = BUILD / "native" / "fuzz" / target.partition(":")[0]
    kept = corpus(target)
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = environment(target, folder)
        found = folder / "found"
        found.mkdir()
        made = seeds(target, folder)
        if libfuzzer:
            options = [
                f"-max_total_time={seconds}",
                f"-max_len={MAX_BYTES}",
                "-print_final_stats=1",
                "-rss_limit_mb=4096",
            ]
            command = [str(program), *options, f"-artifact_prefix={BUILD}/", str(found), str(kept), str(made)]
        else:
            variables["RAILWEAVE_FUZZ_ROUNDS"] = str(seconds * ROUNDS_PER_S)
            command = [str(program), *map(str, sorted([*kept.iterdir(), *made.iterdir()]))]
        done = subprocess.run(command, env=variables, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0 and libfuzzer and grow:
            _merge(program, kept, found, folder / "merged", variables)
    lines = done.stderr.splitlines()
    print(f"{target}: " + ("FAILED" if done.returncode else "; ".join(_figures(lines))), flush=True)
    if done.returncode:
        print("\n".join(lines[-40:]), flush=True)
    return done.returncode


def _figures(lines: list[str]) -> list[str]:
    """Return the executions and the coverage that libFuzzer reports."""
    done = [line for line in lines if line.startswith(("Done", "stat::number_of_executed_units"))]
    covered = [line.split("cov: ")[1].split()[0] for line in lines if "cov: " in line]
    return [*done[:1], *([f"{covered[-1]} edges"] if covered else [])]


def _merge(program: Path, kept: Path, found: Path, merged: Path, variables: dict[str, str]) -> None:
    """Replace the corpus by the fewest inputs that reach the same code."""
    merged.mkdir()
    command = [str(program), "-merge=1", f"-max_len={MAX_BYTES}", str(merged), str(kept), str(found)]
    subprocess.run(command, env=variables, stderr=subprocess.DEVNULL, check=True)
    for old in kept.iterdir():
        old.unlink()
    for new in merged.iterdir():
        shutil.copy(new, kept / new.name)


def main(arguments: list[str]) -> int:
    """Run the targets. Return 1 if any target fails."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=int, default=5, help="for each target")
    parser.add_argument("--grow", action="store_true", help="add what is found to the corpus")
    options = parser.parse_args(arguments)
    libfuzzer = build()
    chosen = options.targets or targets()
    failed = [target for target in chosen if run(target, options.seconds, libfuzzer, options.grow)]
    print(f"{len(chosen)} targets, {len(failed)} failed: {', '.join(failed)}")
    return min(len(failed), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
