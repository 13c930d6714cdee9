# SPDX-License-Identifier: Apache-2.0
"""railweave: multi-rail, in-network collectives with a P4 switch in the loop."""

from importlib.metadata import version

__version__ = version("railweave")
