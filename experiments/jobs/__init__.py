# SPDX-License-Identifier: Apache-2.0
"""Several jobs at once on the same hosts and links: each job's throughput, and rails that it cannot use."""
