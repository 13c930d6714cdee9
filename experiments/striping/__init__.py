# SPDX-License-Identifier: Apache-2.0
"""The gain of striping over the best single rail, the size from which it pays, and the time to learn it."""
