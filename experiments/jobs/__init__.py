# SPDX-License-Identifier: Apache-2.0
"""Several jobs at once on the same hosts and links: what each gets, and what one is refused."""
