# SPDX-License-Identifier: Apache-2.0
"""What a caller may hand in, seen as memory: numpy arrays, buffers, and DLPack on the CPU (as torch's)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from railweave._native.collectives import DType
from railweave.hosts.errors import InvalidOption, UnsupportedDType

DTYPES = {"f": DType.FLOAT32, "i": DType.INT32}  # by numpy's type character

Array = npt.NDArray[Any]


def as_array(x: Any) -> Array:
    """Return a numpy array on the caller's own memory, perhaps read-only; of a scalar, a copy."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, ValueError, TypeError) as error:
            if "dtype" in str(error):  # numpy's word for types that it does not know, such as bfloat16
                raise _unsupported(getattr(x, "dtype", "this")) from error
            raise InvalidOption(
                f"cannot use a {type(x).__name__} in place: {error}; give a tensor on the CPU"
            ) from error
    return np.asarray(x)


def input_array(x: Any) -> Array:
    """Return what to read: the caller's memory, or a packed copy of it where it is not contiguous."""
    array = as_array(x)
    if array.dtype.char not in DTYPES or not array.dtype.isnative:
        raise _unsupported(array.dtype)
    return np.ascontiguousarray(array) if array.ndim else array.reshape(1)


def output_array(out: Any, like: Array) -> Array:
    """Return where to write. Refuses what has not the size and type of `like` or is not contiguous."""
    array = as_array(out)
    if array.dtype != like.dtype or array.size != like.size:
        raise InvalidOption(f"out holds {array.size} of {array.dtype}: expected {like.size} of {like.dtype}")
    if not array.flags.c_contiguous:
        raise InvalidOption(
            "out is not contiguous: give a contiguous array, or none and take the one returned"
        )
    if not array.flags.writeable:
        raise InvalidOption("out is read-only")
    return array.reshape(-1)


def _unsupported(dtype: object) -> UnsupportedDType:
    known = " or ".join(str(np.dtype(char)) for char in DTYPES)
    return UnsupportedDType(f"cannot reduce {dtype}: expected {known}, in this machine's byte order")
