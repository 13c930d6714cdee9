# SPDX-License-Identifier: Apache-2.0
"""The report of all figures: one HTML file that needs no network."""
