# SPDX-License-Identifier: Apache-2.0
"""The commands of `railweave`: options in, calls of the packages that do the work, output."""
