# SPDX-License-Identifier: Apache-2.0
"""What the failure of a rail does to a running collective: pauses, rerouting, readmission."""
