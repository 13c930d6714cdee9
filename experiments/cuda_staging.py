# SPDX-License-Identifier: Apache-2.0
"""Measures how CUDA tensors go over the rails: copies alone, rails alone, both, and when each piece is where.

torchrun --nproc-per-node 2 -m railweave.experiments.cuda_staging --out staging.json
python -m railweave.experiments.cuda_staging --plot staging.json --out staging.png
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20
WARM_UP = 2  # rounds that do not count


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
    """Return a class of side streams that note when copies begin and end, in seconds of time.monotonic."""
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
    """Return a note with times in place of events."""
    streams, (begin, end) = note["streams"], note["events"]
    begin_s, end_s = (streams.origin_s + streams.origin.elapsed_time(event) / 1e3 for event in (begin, end))
    return {"what": note["what"], "bytes": note["bytes"], "begin_s": begin_s, "end_s": end_s}


def measure(sizes: Sequence[int], rounds: int, timeline_bytes: int) -> dict[str, Any]:
    """Return the times of every contender, which take turns, and this rank's timeline."""
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

    for _ in range(2):  # pinned memory is made
        first = torch.zeros(16 * MIB, device=device)
        staged(copies.all_reduce(first, "max", first))
        dist.all_reduce(first)
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
    results = []
    for size in sizes:
        x = torch.zeros(size // 4, device=device)
        host, plain = torch.zeros(size // 4, pin_memory=True), torch.zeros(size // 4)
        times: dict[str, list[float]] = {name: [] for name in (*alone, *together)}
        for number in range(WARM_UP + rounds):
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
                took = time.monotonic() - begin
                if name in together:
                    of = plain if name == "all_reduce on the CPU" else x
                    if of[0].item() != ranks * (ranks + 1) / 2 or of[-1].item() != of[0].item():
                        raise AssertionError(f"{name}: {of}")
                if number >= WARM_UP:
                    times[name].append(took)
        results.append({"bytes": size, "times_s": times})
    copies.close()
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "ranks": ranks,
        "piece_bytes": staging.PIECE_BYTES,
        "results": results,
        "timeline": timeline(timeline_bytes),
    }


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
    for _ in range(3):  # the last one is told of
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


def report(measured: Mapping[str, Any]) -> str:
    """Return the medians as a table, in GB/s of the tensor."""
    names = list(measured["results"][0]["times_s"])
    lines = [
        f"{measured['device']}, torch {measured['torch']}, {measured['ranks']} ranks; GB/s of the tensor"
    ]
    lines.append(f"{'':<24}" + "".join(f"{each['bytes'] // MIB:>6} MiB" for each in measured["results"]))
    for name in names:
        rates = [
            each["bytes"] / statistics.median(each["times_s"][name]) / 1e9 if each["times_s"][name] else 0.0
            for each in measured["results"]
        ]
        lines.append(f"{name:<24}" + "".join(f"{rate:>10.2f}" for rate in rates))
    return "\n".join(lines)


def plot(measured: Mapping[str, Any], out: Path) -> None:
    """Draw the timeline."""
    from matplotlib import pyplot  # noqa: PLC0415

    rows = ["to the GPU", "on the rails", "to the host"]
    figure, axes = pyplot.subplots(figsize=(8, 2.2), layout="constrained")
    for each in measured["timeline"]:
        begin_ms, took_ms = 1e3 * each["begin_s"], 1e3 * (each["end_s"] - each["begin_s"])
        color = f"C{rows.index(each['what'])}"
        axes.barh(
            rows.index(each["what"]), took_ms, left=begin_ms, color=color, edgecolor="white", linewidth=0.4
        )
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("ms from the call")
    total = sum(each["bytes"] for each in measured["timeline"] if each["what"] == "to the host")
    title = f"all_reduce of {total // MIB} MiB, {measured['ranks']} ranks, {measured['device']}"
    axes.set_title(title, fontsize=9)
    figure.savefig(out, dpi=110)


def main() -> None:
    """Measure, or plot what has been measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1,16,64,256", help="of tensors, in MiB")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--piece", type=int, help="size of a piece, in MiB, in place of railweave's own")
    parser.add_argument("--timeline", type=int, default=64, help="size of the call that is shown, in MiB")
    parser.add_argument("--plot", type=Path, help="a file that has been measured")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    if asked.plot:
        plot(json.loads(asked.plot.read_text()), asked.out)
        return
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    import railweave.torch  # noqa: PLC0415
    from railweave.torch import staging  # noqa: PLC0415

    railweave.torch.rank_from_launcher()
    dist.init_process_group("railweave")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    if asked.piece:
        staging.PIECE_BYTES = asked.piece * MIB
    sizes = [int(size) * MIB for size in asked.sizes.split(",")]
    measured = measure(sizes, asked.rounds, asked.timeline * MIB)
    if dist.get_rank() == 0:
        print(report(measured))
        asked.out.write_text(json.dumps(measured))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
