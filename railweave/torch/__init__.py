# SPDX-License-Identifier: Apache-2.0
"""Register railweave as a back end of torch.distributed.

    import railweave.torch

    torch.distributed.init_process_group("railweave")

The import registers the back end for tensors on the CPU and on CUDA devices. The rest of the program does
not change: DistributedDataParallel, FSDP and DTensor work as before.

RAILWEAVE_RAILS and RAILWEAVE_CONTROLLER select rails and controller, as for `railweave.init`. Without a
controller the ranks meet in the process group's store, and only rails without a switch work. Without
RAILWEAVE_RAILS there is one TCP rail. Its interface is the one that leads to the store's host or, on that
host, to the other machines.
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
    """Set RANK and WORLD_SIZE from the variables of mpirun or srun.

    torch reads only RANK and WORLD_SIZE. Variables that are set keep their values.
    """
    for rank, size in LAUNCHERS:
        if rank in os.environ and size in os.environ:
            os.environ.setdefault("RANK", os.environ[rank])
            os.environ.setdefault("WORLD_SIZE", os.environ[size])
            return


def report(group: Any = None) -> str:
    """Return a table of this rank's calls over rails, one row per kind and size.

    The columns are the kind of call, its bytes, the number of calls, the present split, the mean time, and
    `hidden`: the part of that time in which the program did not wait. Calls over Gloo are not counted.

    Args:
        group: A process group of railweave; None: the group of all ranks.

    Returns:
        The table, as text.

    Raises:
        InvalidOption: `group` is not a process group of railweave.
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
