# SPDX-License-Identifier: Apache-2.0
"""How a tensor is cut over the rails: costs that are learnt, or shares that are given."""

from railweave.hosts.striping.planner import CallKey, Plan, Planner
from railweave.hosts.striping.prediction import Prediction, predict
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.saved import planner_for, save

__all__ = ["CallKey", "Plan", "Planner", "Prediction", "StripedRail", "planner_for", "predict", "save"]
