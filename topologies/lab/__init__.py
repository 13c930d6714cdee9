# SPDX-License-Identifier: Apache-2.0
"""A topology brought to life in network namespaces: processes, links, faults."""
