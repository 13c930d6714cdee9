# SPDX-License-Identifier: Apache-2.0
"""Topologies as values. `lab` builds their networks."""
