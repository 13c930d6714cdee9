# SPDX-License-Identifier: Apache-2.0
"""The collective calls as programs make them: arguments are checked here, and results made."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from railweave._native.collectives import Called, Collective, ReduceOp
from railweave.hosts.arrays import Array, input_array, new_like, output_array
from railweave.hosts.capabilities import OPS
from railweave.hosts.errors import InvalidOption


class Collectives(ABC):
    """What a communicator can do; how a call is run is the communicator's.

    Every call takes as `x` (and `out`) a numpy array or anything with the buffer protocol or DLPack on the
    CPU, of float16, bfloat16 (ml_dtypes' or torch's), float32, float64, int8, uint8, int32 or int64. All
    ranks make the same calls in the same order, with the same shapes, types, operations and roots; that
    holds for tensors of no elements, too. A call
    returns its result (a torch tensor where `x` is one, else a numpy array) or, with `async_op`, a Work whose
    `wait` does; leave the arrays alone until then. Calls
    raise UnsupportedDType, InvalidOption, CollectiveMismatch, PeerLost, RailDown.
    """

    rank: int
    world_size: int

    @abstractmethod
    def _run(
        self,
        collective: Collective,
        source: Array,
        target: Array,
        count: int,
        result: Any,
        async_op: bool,
        op: ReduceOp = ReduceOp.SUM,
        root: int = 0,
        called: Called = Called.AS_CARRIED,
    ) -> Any:
        """Run a collective from `source` to `target`, both flat and contiguous; return `result` or a Work.

        `count` is in elements: of the tensor, or of one shard where there are shards, of which `source` or
        `target` then has one per rank. `called` says which call of the program this is, where `collective`
        does not: ranks that differ in it get a CollectiveMismatch.
        """

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce `x` element by element over all ranks; every rank gets the same result, bit for bit.

        `x` is read in place if it is contiguous, else packed. `op` is sum, prod, max, min or avg. Results are
        numpy's: integers wrap, max and min pass NaN on; an average is the sum, divided, of integers cut
        towards zero. Rails of hosts add and multiply halves as float32 and round once per rank; an in-network
        rail sums floats as fixed point. What that cannot carry goes by the other rails. The result goes to
        `out`, which may be `x`, else to a new array of x's shape.
        """
        return self._reduce_to(None, x, op, out, async_op)

    def reduce(self, x: Any, root: int = 0, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce `x` over all ranks; the root gets the result, in `out` or a new array, the others None.

        It moves and takes what all_reduce does. Only the root may give an `out`.
        """
        root = self._root(root)
        if self.rank != root and out is not None:
            raise InvalidOption(
                f"out is given on rank {self.rank}",
                f"out on the root, rank {root}, only",
                "pass no out on this rank",
            )
        return self._reduce_to(root, x, op, out, async_op)

    def _reduce_to(self, root: int | None, x: Any, op: str, out: Any, async_op: bool) -> Any:
        """Reduce to one rank, or to all."""
        source = input_array(x)
        result = new_like(x, np.shape(x), source.dtype) if out is None else out
        target = output_array(result, source.dtype, source.size)
        call = (Collective.ALL_REDUCE, source, target, source.size)
        if root is None:
            return self._run(*call, result, async_op, _op(op))
        kept = result if root == self.rank else None
        return self._run(*call, kept, async_op, _op(op), root, Called.REDUCE)

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce `x` over all ranks, each of which gets one shard of the result: rank r the r-th.

        `x` is cut along its first axis, which the number of ranks must divide: of shape (n·k, …) every rank
        gets (k, …). An `x` of shape (n, …) whose shards shall have no such axis wants an `out`. The result
        goes to `out`, of as many elements as a shard, else to a new array; `out` may be this rank's own shard
        of `x`, and nothing else of it. Operations and rounding are all_reduce's.
        """
        source = input_array(x)
        shape = np.shape(x)
        if not shape or shape[0] % self.world_size:
            raise InvalidOption(
                f"x has shape {shape}",
                f"a first axis that {self.world_size} ranks can divide",
                "pad x along this axis",
            )
        count = source.size // self.world_size
        result = new_like(x, (shape[0] // self.world_size, *shape[1:]), source.dtype) if out is None else out
        target = output_array(result, source.dtype, count)
        return self._run(Collective.REDUCE_SCATTER, source, target, count, result, async_op, _op(op))

    def all_gather(self, x: Any, out: Any = None, async_op: bool = False) -> Any:
        """Collect every rank's `x`, in the order of the ranks; all have the same shape and type.

        The result is concatenated along the first axis, as reduce_scatter cuts: of (k, …) it is (n·k, …), of
        scalars (n,). It goes to `out`, of as many elements, which may as well have the shape (n, k, …), else
        to a new array. `x` may be this rank's own shard of `out`, and nothing else of it.
        """
        source = input_array(x)
        first, *others = np.shape(x) or (1,)
        result = new_like(x, (self.world_size * first, *others), source.dtype) if out is None else out
        target = output_array(result, source.dtype, self.world_size * source.size)
        return self._run(Collective.ALL_GATHER, source, target, source.size, result, async_op)

    def broadcast(self, x: Any, root: int = 0, async_op: bool = False) -> Any:
        """Overwrite `x` on every rank with the root's; returns it.

        On the root `x` is only read, so it may be read-only or not contiguous there.
        """
        root = self._root(root)
        source = input_array(x)
        if self.rank == root:
            target = source if source.flags.writeable else source.copy()
        else:
            source = target = output_array(x, source.dtype, source.size, name="x")
        return self._run(Collective.BROADCAST, source, target, source.size, x, async_op, root=root)

    def barrier(self, async_op: bool = False) -> Any:
        """Return when all ranks have called it; with `async_op`, a Work whose `wait` does."""
        token = np.zeros(1, np.int32)
        call = (Collective.ALL_REDUCE, token, token, 1)
        return self._run(*call, None, async_op, called=Called.BARRIER)

    def _root(self, root: int) -> int:
        root = whole_number("root", root)
        if not 0 <= root < self.world_size:
            raise InvalidOption(
                f"root is {root}", f"a rank, 0 to {self.world_size - 1}", "pass one of these as root"
            )
        return root


def _op(name: str) -> ReduceOp:
    found = OPS.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidOption(f"op is {name!r}", f"one of {', '.join(OPS)}", "pass one of these as op")
    return found


def whole_number(name: str, value: object) -> int:
    """Return `value` as an int; InvalidOption calls it `name` if it is no whole number."""
    try:
        return operator.index(value)  # type: ignore[arg-type]  # this is the check
    except TypeError:
        raise InvalidOption(f"{name} is {value!r}", "a whole number", f"pass an int as {name}") from None
