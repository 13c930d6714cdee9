# SPDX-License-Identifier: Apache-2.0
"""How fast a switch target runs the aggregation program: the engine alone, and end to end over veth."""
