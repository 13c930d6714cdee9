# SPDX-License-Identifier: Apache-2.0
"""The collective calls as programs make them: arguments are checked here, and results made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from railweave._native.collectives import Collective, ReduceOp
from railweave.hosts.arrays import Array, input_array, output_array
from railweave.hosts.capabilities import OPS
from railweave.hosts.errors import InvalidOption


class Collectives(ABC):
    """What a communicator can do; how a call is run is the communicator's."""

    @abstractmethod
    def _run(
        self,
        collective: Collective,
        source: Array,
        target: Array,
        *,
        op: ReduceOp = ReduceOp.SUM,
        root: int = 0,
        count: int,
        result: Any,
        async_op: bool,
    ) -> Any:
        """Run a collective from `source` to `target`, both flat and contiguous; return `result` or a Work.

        `count` is in elements: of the tensor, or of one shard where there are shards, of which `source` or
        `target` then has one per rank.
        """

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce `x` element by element over all ranks; every rank gets the same result, bit for bit.

        `x` is a numpy array or anything with the buffer protocol or DLPack on the CPU, of float16, bfloat16
        (ml_dtypes' or torch's), float32, float64, int8, uint8, int32 or int64; it is read in place if
        contiguous, else packed. `op` is sum, prod, max, min or avg. Results are numpy's: integers wrap, max
        and min pass NaN on; an average is the sum, divided, of integers cut towards zero. Rails of hosts add
        and multiply halves as float32 and round once per rank; an in-network rail sums floats as fixed point.
        What that cannot carry goes by the other rails. The result goes to `out`, which may be `x`, else to a
        new array of x's shape.

        Returns the result or, with `async_op`, a Work whose `wait` does; leave both arrays alone until then.
        Raises UnsupportedDType, InvalidOption, CollectiveMismatch, PeerLost, RailDown.
        """
        source = input_array(x)
        result = np.empty(np.shape(x), source.dtype) if out is None else out
        flat = source.reshape(-1)
        target = output_array(result, flat)
        reduce_op = OPS.get(op)
        if reduce_op is None:
            raise InvalidOption(f"op is {op!r}: expected one of {', '.join(OPS)}")
        return self._run(
            Collective.ALL_REDUCE,
            flat,
            target,
            op=reduce_op,
            count=flat.size,
            result=result,
            async_op=async_op,
        )

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self.all_reduce(np.zeros(1, np.int32))
