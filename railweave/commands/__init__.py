# SPDX-License-Identifier: Apache-2.0
"""The commands of `railweave`. They read options, call the packages that do the work, and print results."""
