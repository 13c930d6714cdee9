# SPDX-License-Identifier: Apache-2.0
"""Time of a small allreduce against the number of hosts, beside its peers."""
