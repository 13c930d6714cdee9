# SPDX-License-Identifier: Apache-2.0
"""Experiments: what is run, measured and drawn."""
