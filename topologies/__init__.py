# SPDX-License-Identifier: Apache-2.0
"""Topologies as values, and the adapter that makes them in Mininet."""
