# SPDX-License-Identifier: Apache-2.0
"""The commands of `railweave`: options in, work done elsewhere, words and files out."""
