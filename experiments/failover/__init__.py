# SPDX-License-Identifier: Apache-2.0
"""The effect of a rail's failure on a running collective: pauses, rerouting, readmission."""
