"""Entries in the log of a partition's group: requests or writes, with the leader's time.

Steps of transactions are requests like others (`logged_steps`): a *prepare* stores the writes of a branch beside the
map, as entries of a map of their own, and *commit* applies them. So a state sent to another replica has the branches.
"""

from __future__ import annotations

import msgspec

from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites


class ZoneMark(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Changes nothing. Only in logs of older builds, which compared replicas at such a place."""


class ZoneCommand(msgspec.Struct, frozen=True, array_like=True):
    time_ms: int
    """Clock of the leader that accepted it: milliseconds since 1970."""
    parts: tuple[ZoneRequests | ZoneWrites | ZoneMark, ...] = ()
    sweep: bool = False
    counted: bool = False
    """Updates have terms, from this command on (raft_partition/Z-6): all members know that."""


encode_command = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(ZoneCommand).decode
