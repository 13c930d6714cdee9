# SPDX-License-Identifier: Apache-2.0
"""Gloo, through PyTorch. Reduces and broadcasts in place."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from railweave.errors import explain
from railweave.experiments.contenders import Array, Endpoint, Implementation, Job


class Kind(Implementation):
    """Joins by torchrun's variables, which every host's process has."""

    collectives = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
    ops = ("sum", "max", "min")

    def obstacle(self) -> str:
        """Return what to install if PyTorch is missing."""
        found = importlib.util.find_spec("torch")
        return "" if found else explain("gloo without PyTorch", "PyTorch", "install it: make baseline")

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the process group."""
        return _Endpoint(job)


class _Endpoint(Endpoint):
    def __init__(self, job: Job) -> None:
        import torch  # noqa: PLC0415 - optional
        import torch.distributed as dist  # noqa: PLC0415

        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timedelta(seconds=job.timeout_s))
        self._torch: Any = torch
        self._dist: Any = dist
        self._ops = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
        self._tensors: dict[tuple[int, int], Any] = {}

    def _tensor(self, array: Array) -> Any:
        """Wrap an array once. Wrapping takes microseconds, which must not count as Gloo's time."""
        where = array.__array_interface__["data"][0], array.size
        tensor = self._tensors.get(where)
        if tensor is None:
            tensor = self._tensors[where] = self._torch.from_numpy(array)
        return tensor

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        self._dist.all_reduce(self._tensor(out), op=self._ops[op])

    def reduce_scatter(self, given: Array, out: Array, op: str) -> None:
        self._dist.reduce_scatter_tensor(self._tensor(out), self._tensor(given), op=self._ops[op])

    def all_gather(self, given: Array, out: Array) -> None:
        self._dist.all_gather_into_tensor(self._tensor(out), self._tensor(given))

    def broadcast(self, out: Array, root: int) -> None:
        self._dist.broadcast(self._tensor(out), src=root)

    def barrier(self) -> None:
        self._dist.barrier()

    def versions(self) -> Mapping[str, str]:
        return {"torch": self._torch.__version__}

    def close(self) -> None:
        self._dist.destroy_process_group()
