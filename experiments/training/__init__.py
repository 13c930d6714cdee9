# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of a small real model, compared with the same training in one process."""
