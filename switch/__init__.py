# SPDX-License-Identifier: Apache-2.0
"""Switch targets: the embedded P4 engine and its P4Runtime server, and BMv2."""
