# SPDX-License-Identifier: Apache-2.0
"""Any program on the testbed: `railweave run`."""
