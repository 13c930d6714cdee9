# SPDX-License-Identifier: Apache-2.0
"""How fast the embedded switch is end to end, between hosts on veth links, under closed-loop load."""
