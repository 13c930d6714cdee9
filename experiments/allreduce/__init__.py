# SPDX-License-Identifier: Apache-2.0
"""The sweeps of sizes behind `railweave bench all-reduce`, `reduce-scatter`, `all-gather` and `broadcast`."""
