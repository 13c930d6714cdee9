# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server (specification 1.4 and later) over a Pipeline, for any P4Info."""
