# SPDX-License-Identifier: Apache-2.0
"""What the controller costs as networks and jobs grow: on switches that answer, and move no packets."""
