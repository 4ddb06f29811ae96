"""What an entry in the log of a partition's group holds: requests, writes or a mark, with the time of their leader."""

from __future__ import annotations

import msgspec

from holdfast.core.model.operations import Request
from holdfast.core.model.zone_batches import ZoneWrite


class ZoneRequests(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Requests that came one after the other."""

    requests: list[Request]


class ZoneWrites(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Writes of single entries that came one after the other."""

    writes: list[ZoneWrite]


class ZoneMark(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Nothing changes; what is held at this place is kept for a while, to be compared: see `marked_copies`."""


class ZoneCommand(msgspec.Struct, frozen=True, array_like=True):
    """What is in one entry of a partition's log."""

    time_ms: int
    """When the leader took it: milliseconds since 1970, as that one believes."""
    parts: tuple[ZoneRequests | ZoneWrites | ZoneMark, ...] = ()
    sweep: bool = False
    """Whether everything whose time is over is taken out."""


encode_command = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(ZoneCommand).decode
