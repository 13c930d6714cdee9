# SPDX-License-Identifier: Apache-2.0
"""Measure how CUDA tensors go over the rails: copies alone, rails alone, both, and the times of each piece.

torchrun --nproc-per-node 2 -m railweave.benchmarks.staging --json staging.json --plot staging.png
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from railweave import outputs
from railweave.benchmarks import harness
from railweave.benchmarks.harness import REPORT, Benchmark, OnPhase, Part, Reading
from railweave.experiments import provenance
from railweave.experiments.errors import ResultError

MIB = 1 << 20
WARM_UP = 2  # calls of each size before the timed one
LINES = ("to the GPU", "on the rails", "to the host")  # of the timeline


class NoRails:
    """A communicator whose calls end at once, so that only copies take time."""

    rank, world_size = 0, 1
    options = SimpleNamespace(rails=())

    def all_reduce(self, *_: Any, **__: Any) -> NoRails:
        """Do nothing."""
        return self

    broadcast = all_reduce

    def wait(self) -> None:
        """Return at once."""


def streams_that_note(notes: list[dict[str, Any]]) -> Any:
    """Return a class of side streams that append a note with CUDA events for each copy."""
    import torch  # noqa: PLC0415

    from railweave.torch.staging import SideStreams  # noqa: PLC0415

    class Noting(SideStreams):
        def __init__(self, device: torch.device) -> None:
            super().__init__(device)
            self.origin = torch.cuda.Event(enable_timing=True)
            self.origin.record()
            self.origin.synchronize()
            self.origin_s = time.monotonic()

        def _copy(self, stream: Any, copies: Iterable[tuple[Any, Any]]) -> Any:
            pairs = list(copies)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            event = super()._copy(stream, pairs)
            end.record(stream)
            if pairs:
                what = "to the host" if stream is self._down else "to the GPU"
                size = sum(source.nbytes for _, source in pairs)
                notes.append({"what": what, "bytes": size, "events": (begin, end), "streams": self})
            return event

    return Noting


def timed(note: Mapping[str, Any]) -> dict[str, Any]:
    """Return a note with times in place of events, in seconds of time.monotonic."""
    streams, (begin, end) = note["streams"], note["events"]
    begin_s, end_s = (streams.origin_s + streams.origin.elapsed_time(event) / 1e3 for event in (begin, end))
    return {"what": note["what"], "bytes": note["bytes"], "begin_s": begin_s, "end_s": end_s}


async def measure(sizes: Sequence[int], _: Path, on_phase: OnPhase) -> AsyncIterator[Reading]:
    """Measure every kind of transfer, one after the other, for tensors of these sizes in MiB."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    from railweave.torch import staging  # noqa: PLC0415

    device = torch.device("cuda", torch.cuda.current_device())
    rank, ranks = dist.get_rank(), dist.get_world_size()
    copies = staging.Staging(NoRails())  # type: ignore[arg-type]
    streams = copies.streams(device)

    def staged(call: Any) -> None:
        call.wait()
        streams.join(streams.store([]))

    def pageable(x: Any) -> None:
        on_cpu = x.cpu()
        dist.all_reduce(on_cpu)
        x.copy_(on_cpu)

    # Of a tensor on the GPU, pinned memory, and a tensor on the CPU.
    alone: dict[str, Callable[[Any, Any, Any], Any]] = {
        "plain copy to the host": lambda x, host, _: host.copy_(x, non_blocking=True),
        "plain copy to the GPU": lambda x, host, _: x.copy_(host, non_blocking=True),
        "staged to the host": lambda x, *_: staged(copies.broadcast(x, 0)),
        "staged to the GPU": lambda x, *_: staged(copies.broadcast(x, 1)),
        "staged both ways": lambda x, *_: staged(copies.all_reduce(x, "sum", x)),
    }
    together: dict[str, Callable[[Any, Any, Any], Any]] = {
        "all_reduce on the CPU": lambda _, __, plain: dist.all_reduce(plain),
        "all_reduce on the GPU": lambda x, *_: dist.all_reduce(x),
        "copy, all_reduce, copy": lambda x, *_: pageable(x),
    }
    for mib in sizes:
        on_phase(f"{mib} MiB")
        x = torch.zeros(mib * MIB // 4, device=device)
        host, plain = torch.zeros(mib * MIB // 4, pin_memory=True), torch.zeros(mib * MIB // 4)
        for number in range(WARM_UP + 1):
            for name, call in {**alone, **together}.items():
                for of in (x, plain):
                    of.fill_(rank + 1.0)
                torch.cuda.synchronize()
                dist.barrier()
                if name in alone and rank > 0:
                    continue  # they would share the bus
                begin = time.monotonic()
                call(x, host, plain)
                torch.cuda.synchronize()
                took_s = time.monotonic() - begin
                if name in together:
                    of = plain if name == "all_reduce on the CPU" else x
                    if of[0].item() != ranks * (ranks + 1) / 2 or of[-1].item() != of[0].item():
                        raise ResultError(f"{name}: {of}", "the sum over all ranks", REPORT)
                if number == WARM_UP:
                    rate = (mib * MIB / took_s / 1e9, "GB/s")
                    yield Reading(
                        "staging",
                        {"way": name, "MiB": mib, "ranks": ranks, "piece": staging.PIECE_BYTES >> 20},
                        {"rate": rate},
                    )
    copies.close()


def timeline(size: int) -> list[dict[str, Any]]:
    """Return when the pieces of one all_reduce are copied and on the rails, in seconds from its beginning."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    from railweave.torch.staging import Staging  # noqa: PLC0415

    comm = dist.group.WORLD._comm
    notes: list[dict[str, Any]] = []
    staging = Staging(comm, streams_that_note(notes))
    x = torch.ones(size // 4, device="cuda")
    streams = staging.streams(x.device)
    begin = 0.0
    for _ in range(WARM_UP + 1):
        torch.cuda.synchronize()
        dist.barrier()
        comm.drain_records()
        notes.clear()
        begin = time.monotonic()
        staging.all_reduce(x, "max", x).wait()
        streams.join(streams.store([]))
        torch.cuda.synchronize()
    found = [timed(note) for note in notes]
    for record in comm.drain_records():
        found.append(
            {"what": "on the rails", "bytes": record.bytes, "begin_s": record.start_s, "end_s": record.end_s}
        )
    staging.close()
    return [{**each, "begin_s": each["begin_s"] - begin, "end_s": each["end_s"] - begin} for each in found]


def plot(pieces: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw a timeline."""
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(8, 2.2), layout="constrained")
    for each in pieces:
        line = LINES.index(each["what"])
        begin_ms, took_ms = 1e3 * each["begin_s"], 1e3 * (each["end_s"] - each["begin_s"])
        axes.barh(line, took_ms, left=begin_ms, color=f"C{line}", edgecolor="white", linewidth=0.4)
    axes.set_yticks(range(len(LINES)), LINES)
    axes.set_xlabel("ms from the call")
    axes.set_title(title, fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure in a rank that torchrun has started. Rank 0 prints and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1,16,64,256", help="sizes of tensors in MiB, a list")
    parser.add_argument("--repeat", type=int, default=10, help="number of repetitions")
    parser.add_argument("--piece", type=int, help="size of a piece in MiB. Default: railweave's own")
    parser.add_argument("--timeline", type=int, default=64, help="size of the call in the timeline in MiB")
    parser.add_argument("--plot", type=Path, help="draw the timeline to a new file")
    parser.add_argument("--json", type=Path, help="write the result to a new file")
    asked = parser.parse_args()
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    import railweave.torch  # noqa: PLC0415
    from railweave.torch import staging  # noqa: PLC0415

    railweave.torch.rank_from_launcher()
    dist.init_process_group("railweave")
    if dist.get_rank() == 0:
        outputs.check_new_file("--json", asked.json)
        outputs.check_new_file("--plot", asked.plot)
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    if asked.piece:
        staging.PIECE_BYTES = asked.piece * MIB
    sizes = [int(size) for size in asked.sizes.split(",")]
    gpu = torch.cuda.get_device_name()
    benchmark = Benchmark(
        "staging",
        {"staging": Part(partial(measure, sizes), f"the rails, or the bus of the {gpu}", ())},
    )
    result = asyncio.run(harness.run(benchmark, asked.repeat, Path(), lambda _: None))
    pieces = timeline(asked.timeline * MIB)
    if dist.get_rank() == 0:
        console = Console(highlight=False, markup=False)
        console.print(*result.tables())
        console.print(result.notes())
        if asked.plot:
            title = f"all_reduce of {asked.timeline} MiB, {dist.get_world_size()} ranks, {gpu}"
            plot(pieces, title, asked.plot)
        if asked.json:
            value = {
                "command": shlex.join(["python", "-m", "railweave.benchmarks.staging", *sys.argv[1:]]),
                "versions": {**provenance.versions(), "torch": torch.__version__},
                "seed": None,
                **result.as_json(),
                "timeline": pieces,
            }
            outputs.write_new_file("--json", asked.json, json.dumps(value, indent=2))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
