# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of parts alone: the switch, the receive path, the controller, copies of CUDA tensors."""
