# SPDX-License-Identifier: Apache-2.0
"""How a tensor is cut over the rails: costs that are learnt, or shares that are given."""

from railweave.hosts.striping.fixed import default_shares, normalised
from railweave.hosts.striping.plan import Plan
from railweave.hosts.striping.planner import CallKey, Planner
from railweave.hosts.striping.prediction import Prediction, predict
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.start import planner_for

__all__ = [
    "CallKey",
    "Plan",
    "Planner",
    "Prediction",
    "StripedRail",
    "default_shares",
    "normalised",
    "planner_for",
    "predict",
]
