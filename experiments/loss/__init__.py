# SPDX-License-Identifier: Apache-2.0
"""The time of in-network reduction by probability of loss, with duplication and reordering, on every link."""
