"""Frames between members: their header, kinds and bounds."""

from __future__ import annotations

import struct

FRAME = struct.Struct("<IB")
"""Length of everything after the length field, and kind."""
PACKET, DATAGRAM = 0, 1
LENGTH_BYTES = 4
REQUEST_BYTES_MAX = 4096
FRAME_BYTES_MAX = 256 * 1024 * 1024
