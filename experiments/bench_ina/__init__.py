# SPDX-License-Identifier: Apache-2.0
"""What an in-network endpoint costs per chunk, without network and switch."""
