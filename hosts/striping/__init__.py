# SPDX-License-Identifier: Apache-2.0
"""Striping: cut a tensor over the rails, by learned costs or by given shares."""

from railweave.hosts.striping.planner import CallKey, Plan, Planner
from railweave.hosts.striping.priors import StripedRail

__all__ = ["CallKey", "Plan", "Planner", "StripedRail"]
