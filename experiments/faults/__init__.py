# SPDX-License-Identifier: Apache-2.0
"""The fault table behind `railweave bench faults`: what each kind of death does to a running collective."""
