# SPDX-License-Identifier: Apache-2.0
"""What striping brings over the best single rail, where it begins to pay, and how quickly it is learnt."""
