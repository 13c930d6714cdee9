# SPDX-License-Identifier: Apache-2.0
"""Aggregation trees, groups, admission and reconciliation over P4Runtime."""
