# SPDX-License-Identifier: Apache-2.0
"""The collective calls as programs make them. This file checks the arguments and makes the result arrays."""

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
    """Provide the collective calls of a communicator.

    `x` and `out` are numpy arrays, or objects in CPU memory that support the buffer protocol or DLPack. The
    data types are float16, bfloat16 (of ml_dtypes or torch), float32, float64, int8, uint8, int32 and int64.
    All ranks make the same calls in the same order, with the same shapes, types, operations and roots. This
    also holds for tensors without elements.

    A call returns its result: a torch tensor if `x` is one, else a numpy array. With `async_op=True` it
    returns a Work at once, and `Work.wait` returns the result. Do not touch the arrays before `wait` returns.

    Raises:
        InvalidOption: An argument is invalid.
        UnsupportedDType: No rail in use can carry this data type and operation.
        CollectiveMismatch: The ranks have called different collectives.
        PeerLost: A rank of the job is gone.
        RailDown: The last rail has failed.
        RailweaveError: The call has not ended within the communicator's `timeout_s`, for another reason.
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

        `count` is the number of elements of the tensor. For collectives with shards it is the number of
        elements of one shard, and `source` or `target` holds one shard per rank. `called` distinguishes calls
        of the program that use the same `collective`: ranks that differ in it get a CollectiveMismatch.
        """

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce `x` element by element over all ranks; every rank gets the same result, bit for bit.

        Results are those of numpy: integers wrap around, and max and min propagate NaN. An average is the sum
        divided by the number of ranks; for integers it is cut towards zero. `tcp` and `rdma` rails add and
        multiply float16 and bfloat16 as float32, and round once per rank. An in-network rail sums floats in
        fixed point; docs/reference/wire-format.md has the error bound. Calls that it cannot carry use the
        other rails.

        Args:
            x: Tensor of any shape. A contiguous tensor is read in place, any other is packed first.
            op: `sum`, `prod`, `max`, `min` or `avg`.
            out: Where the result goes: as many elements and the same type as `x`, may be `x` itself. None: a
                new array of x's shape.
            async_op: Return a Work at once.

        Returns:
            The result, or a Work.
        """
        return self._reduce_to(None, x, op, out, async_op)

    def reduce(self, x: Any, root: int = 0, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce `x` over all ranks to the root.

        Traffic and time are those of all_reduce.

        Args:
            x: Tensor of any shape.
            root: Rank that gets the result.
            op: As for all_reduce.
            out: Where the root's result goes. Only the root may give it.
            async_op: Return a Work at once.

        Returns:
            The result on the root and None on the other ranks, or a Work.
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
        """Reduce `x` over all n ranks, and give rank r the r-th shard of the result.

        Operations and rounding are those of all_reduce.

        Args:
            x: Tensor of shape (n·k, …). It is cut into n shards of shape (k, …) along its first axis.
            op: As for all_reduce.
            out: Where the shard goes: as many elements as a shard, of any shape. It may be this rank's own
                shard of `x`, but must not overlap the rest of `x`. None: a new array of shape (k, …).
            async_op: Return a Work at once.

        Returns:
            This rank's shard, or a Work.
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
        """Collect the tensors of all n ranks, in the order of the ranks.

        Args:
            x: Tensor of shape (k, …), the same shape on all ranks. Scalars count as shape (1,).
            out: Where the result goes: n times as many elements as `x`, such as shape (n·k, …) or (n, k, …).
                `x` may be this rank's own shard of `out`, but must not overlap the rest of `out`. None: a new
                array of shape (n·k, …).
            async_op: Return a Work at once.

        Returns:
            The tensors, concatenated along the first axis, or a Work.
        """
        source = input_array(x)
        first, *others = np.shape(x) or (1,)
        result = new_like(x, (self.world_size * first, *others), source.dtype) if out is None else out
        target = output_array(result, source.dtype, self.world_size * source.size)
        return self._run(Collective.ALL_GATHER, source, target, source.size, result, async_op)

    def broadcast(self, x: Any, root: int = 0, async_op: bool = False) -> Any:
        """Overwrite `x` on every rank with the root's tensor.

        Args:
            x: Tensor of the same shape and type on all ranks. The root only reads it, so there it may be
                read-only or not contiguous.
            root: Rank whose tensor all ranks get.
            async_op: Return a Work at once.

        Returns:
            `x`, or a Work.
        """
        root = self._root(root)
        source = input_array(x)
        if self.rank == root:
            target = source if source.flags.writeable else source.copy()
        else:
            source = target = output_array(x, source.dtype, source.size, name="x")
        return self._run(Collective.BROADCAST, source, target, source.size, x, async_op, root=root)

    def barrier(self, async_op: bool = False) -> Any:
        """Wait until all ranks have called it; with `async_op`, return a Work to wait for instead."""
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
    """Return `value` as an int. InvalidOption names the argument `name` if `value` is no whole number."""
    try:
        return operator.index(value)  # type: ignore[arg-type]  # this is the check
    except TypeError:
        raise InvalidOption(f"{name} is {value!r}", "a whole number", f"pass an int as {name}") from None
