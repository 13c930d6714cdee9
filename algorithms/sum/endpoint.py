# SPDX-License-Identifier: Apache-2.0
"""A rank. The class of the framework numbers the chunks, repeats lost ones, and keeps the window."""

from __future__ import annotations

import numpy as np

from railweave import sdk


class Endpoint(sdk.ChunkEndpoint):
    """A rank whose numbers go into the packets as they are."""

    def pack(self, given: sdk.Array, op: str) -> sdk.Array:
        """Return the numbers of the packets: a row for each."""
        return self.rows(given.astype(np.int32))

    def unpack(self, results: sdk.Array) -> sdk.Array:
        """Return the result of the call from the numbers of all result packets."""
        return results.reshape(-1)[: self.size]
