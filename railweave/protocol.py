# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a job must have in common before they can talk."""

PROTOCOL = 2  # of what ranks say to each other; builds before there was this number say 0
SECRET_BYTES = 32  # of a job's secret, which only its ranks get
