# SPDX-License-Identifier: Apache-2.0
"""Constants on which all ranks of a job must agree before they communicate."""

PROTOCOL = 2  # version of the protocol between ranks; builds without this number send 0
SECRET_BYTES = 32  # size of a job's secret, which only its ranks get
