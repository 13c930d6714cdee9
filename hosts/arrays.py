# SPDX-License-Identifier: Apache-2.0
"""Convert callers' tensors to numpy arrays: numpy's own, buffers, and DLPack on the CPU (as torch's)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from railweave._native.collectives import DType
from railweave.hosts.errors import InvalidOption, UnsupportedDType

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {  # by numpy's type character
    "f": DType.FLOAT32,
    "i": DType.INT32,
    "e": DType.FLOAT16,
    BFLOAT16.char: DType.BFLOAT16,
    "d": DType.FLOAT64,
    "b": DType.INT8,
    "B": DType.UINT8,
    "l": DType.INT64,
    "q": DType.INT64,
}
NAMES = {dtype: np.dtype(char).name for char, dtype in reversed(DTYPES.items()) if char != BFLOAT16.char}
NAMES[DType.BFLOAT16] = BFLOAT16.name

Array = npt.NDArray[Any]


def as_array(x: Any) -> Array:
    """Return a numpy array on the caller's memory, perhaps read-only. A scalar is copied."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__"):
        try:
            return _from_dlpack(x)
        except (BufferError, RuntimeError, ValueError, TypeError) as error:
            if "dtype" in str(error):  # numpy raises this for types that it does not know, such as float8
                raise _unsupported(getattr(x, "dtype", "this")) from error
            raise InvalidOption(
                f"a {type(x).__name__} cannot be used in place ({error})",
                "a tensor on the CPU",
                "copy it to the CPU",
            ) from error
    return np.asarray(x)


def _from_dlpack(x: Any) -> Array:
    """Return a numpy array on a DLPack tensor. torch's bfloat16 passes as bits: numpy lacks the type."""
    torch: Any = sys.modules.get("torch")
    bfloat16 = torch is not None and isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16
    if bfloat16 and not x.requires_grad:
        bits: Array = np.from_dlpack(x.view(torch.int16))
        return bits.view(BFLOAT16)
    array: Array = np.from_dlpack(x)
    return array


def new_like(x: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """Return a new array for results: a torch tensor where `x` is one, else numpy's."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch.empty(tuple(shape), dtype=x.dtype)
    return np.empty(shape, dtype)


def input_array(x: Any) -> Array:
    """Return the flat array to read: the caller's memory, or a packed copy if this is not contiguous."""
    array = as_array(x)
    if array.dtype.char not in DTYPES or not array.dtype.isnative:
        raise _unsupported(array.dtype)
    if array.ndim == 1 and array.flags.c_contiguous:
        return array
    packed: Array = np.ascontiguousarray(array).reshape(-1)
    return packed


def output_array(out: Any, dtype: np.dtype[Any], size: int, name: str = "out") -> Array:
    """Return the flat array to write. InvalidOption unless it is contiguous, writable, `size` of `dtype`."""
    array = as_array(out)
    usual = array is out and array.ndim == 1 and array.flags.carray
    if usual and array.dtype == dtype and array.size == size:
        return array  # fast path: the other ranks wait for this rank
    if array.dtype != dtype or array.size != size:
        raise InvalidOption(
            f"{name} holds {array.size} of {array.dtype}",
            f"{size} of {dtype}",
            f"pass such an array as {name}",
        )
    if not array.flags.c_contiguous:
        raise InvalidOption(
            f"{name} is not contiguous",
            "a contiguous array",
            f"pass a contiguous copy as {name}"
            + (", or leave it out and use the returned array" if name == "out" else ""),
        )
    if not array.flags.writeable or isinstance(out, np.generic):
        raise InvalidOption(f"{name} is read-only", "an array that can be written", f"pass a copy as {name}")
    if not isinstance(out, np.ndarray) and not _is_memory(out):
        raise InvalidOption(
            f"{name} is a {type(out).__name__}", "an array that can be written", f"pass an array as {name}"
        )
    return array.reshape(-1)


def _is_memory(x: Any) -> bool:
    """Return whether numpy saw the caller's own memory, not a copy of its values."""
    if hasattr(x, "__dlpack__") or hasattr(x, "__array_interface__"):
        return True
    try:
        memoryview(x)
    except TypeError:
        return False
    return True


def _unsupported(dtype: object) -> UnsupportedDType:
    known = ", ".join(NAMES.values())
    return UnsupportedDType(
        f"cannot reduce {dtype}", f"one of {known}, in this machine's byte order", "convert the array"
    )
