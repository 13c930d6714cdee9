# SPDX-License-Identifier: Apache-2.0
"""How many packets a core receives on an in-network rail: from memory, and through the kernel."""
