# SPDX-License-Identifier: Apache-2.0
"""The experiment of `railweave bench faults`: what each kind of failure does to a running collective."""
