# SPDX-License-Identifier: Apache-2.0
"""Inspect a running switch over P4Runtime, and over `railweave.v1.Switch` where it is served."""
