# SPDX-License-Identifier: Apache-2.0
"""Hours of collectives of all sorts while rails fail and come back: counts, wrong numbers, memory."""
