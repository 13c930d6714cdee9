# SPDX-License-Identifier: Apache-2.0
"""A rank that splits its job in halves, and reduces in its half and in the whole job at the same time.

It prints `done` and the rails that its half has used.
"""

from __future__ import annotations

import numpy as np

import railweave

ELEMENTS = 1 << 17


def main() -> None:
    with railweave.init() as comm:
        with comm.split(comm.rank % 2, comm.world_size - comm.rank) as half:
            members = [rank for rank in reversed(range(comm.world_size)) if rank % 2 == comm.rank % 2]
            for number in range(20):
                mine = np.full(ELEMENTS, comm.rank + number, np.int32)
                in_half = half.all_reduce(mine, async_op=True)
                everywhere = comm.all_reduce(mine)
                assert np.all(in_half.wait() == sum(members) + number * len(members))
                assert np.all(everywhere == sum(range(comm.world_size)) + number * comm.world_size)
            assert half.all_gather(np.array([comm.rank])).tolist() == members
            half.barrier()
            carried = ",".join(sorted({d.rail for d in half.why() if d.used}))
        comm.barrier()
    print(f"done {carried}", flush=True)


if __name__ == "__main__":
    main()
