# SPDX-License-Identifier: Apache-2.0
"""Experiments on the testbed: programs, measurements and figures."""
