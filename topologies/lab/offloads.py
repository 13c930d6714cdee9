# SPDX-License-Identifier: Apache-2.0
"""Let interfaces of this namespace send plain frames: `python -m railweave.topologies.lab.offloads NAME…`.

A switch that reads its ports through libpcap takes a super-packet for one long frame. It also forwards
unfinished checksums, which a real NIC would complete.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946  # linux/sockios.h
ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO = 0x17, 0x1F, 0x24  # linux/ethtool.h


def send_plain_frames(interface: str) -> None:
    """Switch off checksum and segmentation offloads for sending. OSError if the interface does not exist."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in (ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO):
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            fcntl.ioctl(
                control, SIOCETHTOOL, struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        send_plain_frames(name)
