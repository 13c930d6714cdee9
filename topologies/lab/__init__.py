# SPDX-License-Identifier: Apache-2.0
"""Build a topology from network namespaces: processes, links, faults."""
