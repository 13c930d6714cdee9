# SPDX-License-Identifier: Apache-2.0
"""railweave as a back end of PyTorch's collectives.

import railweave.torch
torch.distributed.init_process_group("railweave")   # then as ever: DistributedDataParallel, FSDP, DTensor

Importing this registers the back end, for tensors on the CPU and on CUDA devices. RAILWEAVE_RAILS and
RAILWEAVE_CONTROLLER say what it runs over, as for `railweave.init`. Without a controller the ranks meet in
the process group's store, and rails that need no switch work; without RAILWEAVE_RAILS there is one TCP rail,
on the way to the store's host or, from there, to the other machines.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from railweave.hosts.errors import InvalidOption
from railweave.hosts.options import LAUNCHERS
from railweave.hosts.prediction import columns, shares_text
from railweave.torch.process_group import DEVICES, ProcessGroup

__all__ = ["ProcessGroup", "rank_from_launcher", "report"]

if "railweave" not in dist.Backend.backend_list:
    dist.Backend.register_backend("railweave", ProcessGroup, extended_api=True, devices=[*DEVICES])


def rank_from_launcher() -> None:
    """Set RANK and WORLD_SIZE, which torch reads, under mpirun and srun, which have other names for them."""
    for rank, size in LAUNCHERS:
        if rank in os.environ and size in os.environ:
            os.environ.setdefault("RANK", os.environ[rank])
            os.environ.setdefault("WORLD_SIZE", os.environ[size])
            return


def report(group: Any = None) -> str:
    """Return a table of the calls that this rank has made: by size, their split now, and what they cost.

    `hidden` is the part of a call's time that the program did not wait for. Calls that go over Gloo are not
    in it. InvalidOption if the group (by default that of all ranks) is none of railweave's.
    """
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, ProcessGroup):
        raise InvalidOption(
            f"{group!r}", "a process group of railweave", "call init_process_group('railweave') first"
        )
    rows = []
    for kind, times in group.overlap.times().items():
        chosen = next((split for split in group.plan(kind).splits if split.chosen), None)
        rows.append(
            (
                " ".join(filter(None, (kind.collective, kind.op, kind.dtype))),
                f"{kind.bytes:,}",
                f"{times.calls:,}",
                shares_text(chosen.shares) if chosen else "",
                f"{1e3 * times.total_s / times.calls:.3f}",
                f"{1 - times.exposed_s / times.total_s:.0%}" if times.total_s else "",
            )
        )
    return "\n".join(columns(("call", "bytes", "calls", "split", "time (ms)", "hidden"), rows))
