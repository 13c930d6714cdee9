# SPDX-License-Identifier: Apache-2.0
"""The P4 programs, their numbers and their compiled form."""
