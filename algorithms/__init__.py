# SPDX-License-Identifier: Apache-2.0
"""In-network algorithms, one folder for each: a P4 program, its control, and the endpoints of the ranks."""
