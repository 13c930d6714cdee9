# SPDX-License-Identifier: Apache-2.0
"""Check that the native module, which is built from C++, can be imported."""

from __future__ import annotations

import sys

EXPECTED = "a native module that loads"
REMEDY = "build it with `./bootstrap run` in railweave's folder, or install railweave with pip"


def problem() -> str:
    """Return why the native module cannot be imported; '' if it can."""
    try:
        # Without the built file, the folder of type stubs imports as an empty package. So import a submodule.
        from railweave._native import ina  # noqa: F401, PLC0415
    except ImportError as error:
        if error.path is None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            return f"the native module is not built for this Python ({version}, {sys.executable})"
        return f"the native module cannot be loaded: {error}"
    return ""
