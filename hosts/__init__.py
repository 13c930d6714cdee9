# SPDX-License-Identifier: Apache-2.0
"""The agent of a host: rails, striping and the communicator."""
