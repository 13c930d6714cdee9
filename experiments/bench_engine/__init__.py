# SPDX-License-Identifier: Apache-2.0
"""How long the embedded engine takes for one packet of the aggregation program, packets in memory."""
