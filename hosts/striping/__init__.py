# SPDX-License-Identifier: Apache-2.0
"""How a tensor is cut over the rails: costs that are learnt, or shares that are given."""

from railweave.hosts.striping.planner import CallKey, Plan, Planner
from railweave.hosts.striping.priors import StripedRail

__all__ = ["CallKey", "Plan", "Planner", "StripedRail"]
