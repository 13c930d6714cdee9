# SPDX-License-Identifier: Apache-2.0
"""Time of in-network reduction against loss, with duplication and reordering, on every link."""
