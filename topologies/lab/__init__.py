# SPDX-License-Identifier: Apache-2.0
"""Builds a topology from network namespaces: processes, links, faults."""
