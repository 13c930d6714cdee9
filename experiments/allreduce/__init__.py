# SPDX-License-Identifier: Apache-2.0
"""The sweep of allreduce sizes behind `railweave bench all-reduce`."""
