# SPDX-License-Identifier: Apache-2.0
"""Train with fully sharded parameters: all_gather before each layer, reduce_scatter of its gradients.

Run one of:

railweave run --hosts 4 --rails ina,tcp,rdma --rate 100M -- python examples/fsdp.py
torchrun --nproc-per-node 2 examples/fsdp.py --device cuda
"""

from __future__ import annotations

from characters import Transformer, main
from torch.distributed import get_world_size
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def sharded(model: Transformer) -> Transformer:
    """Shard each layer, then the rest."""
    mesh = init_device_mesh(model.places.device.type, (get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


if __name__ == "__main__":
    main(__doc__ or "", sharded)
