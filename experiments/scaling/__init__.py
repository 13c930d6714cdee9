# SPDX-License-Identifier: Apache-2.0
"""The time of a small allreduce by number of hosts, compared with other contenders."""
