# SPDX-License-Identifier: Apache-2.0
"""Hours of mixed collectives while rails fail and recover: counts, wrong elements and memory."""
