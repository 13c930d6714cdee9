# SPDX-License-Identifier: Apache-2.0
"""Train with DistributedDataParallel: buckets of gradients are sent while the backward pass still runs.

Run one of:

railweave run --hosts 4 --rails ina,tcp,rdma --rate 100M -- python examples/ddp.py
torchrun --nproc-per-node 2 examples/ddp.py
mpirun -n 2 -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=29500 python examples/ddp.py
"""

from __future__ import annotations

from characters import main
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    main(__doc__ or "", lambda model: DistributedDataParallel(model, bucket_cap_mb=1))
