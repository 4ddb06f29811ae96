"""Serves requests that another member has forwarded as its clients sent them, with the data lane of this member.

That member has checked the rights of its clients. Requests that the lane does not serve at once are skipped
(routing/R-14).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.config import INTERNAL, Settings
from holdfast.core.model.forwarded_frames import MapAccess, ServedPart, numbered
from holdfast.core.model.operations import MAP_NAME_MAX, Value
from holdfast.core.primary_backup.lane import Lane, Ways
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.server.hazelcast import reference_lane
from holdfast.server.hazelcast.frame_parser import DATA_AT, parse, parse_batch
from holdfast.server.hazelcast.keyed_requests import LaneRow
from holdfast.server.hazelcast.reference_lane import BatchEntry, EntryWrite, LaneCode, Served, carry_out
from holdfast.wire.hazelcast.hazelcast_frames import FRAME, IS_FINAL

ROOM_BYTES = 1 << 20
"""Bytes of values in the responses to one message; what needs more is skipped."""
MOST_NAMES = 1000


class LaneIds:
    """Implements `reference_lane.RequestIds`. The marks are those of the general way (`PrimaryCopy.submit`)."""

    def __init__(self, lane: Lane, prefix: bytes, first: int) -> None:
        """`first`: number of the request 0."""
        self._lane = lane
        self._prefix = prefix
        self._first = first

    def write(
        self, number: int, row: LaneRow, copy: PartitionCopy, name: str, key: bytes, write: EntryWrite
    ) -> bytes | None:
        lane = self._lane
        opened, before = lane.opened, _counter(copy, name)
        old = carry_out(lane, row, copy, name, key, write)
        if _counter(copy, name) != before:
            # A request that changed nothing leaves no mark, and may be executed again.
            value = old if row.answers_value else old is not None
            self._remember(copy, number, value, opened)
        return old

    def write_batch(self, number: int, copy: PartitionCopy, name: str, entries: list[BatchEntry]) -> None:
        lane = self._lane
        opened = lane.opened
        for key, value, key_hash in entries:
            lane.set(copy, name, key, value, -1, -1, key_hash)
        self._remember(copy, number, None, opened)

    def _remember(self, copy: PartitionCopy, number: int, value: Value, opened: int) -> None:
        self._lane.remember(copy, numbered(self._prefix, self._first + number), value, opened)


def _counter(copy: PartitionCopy, name: str) -> int:
    held = copy.maps.get(name)
    return held.updates.hwm if held is not None else 0


class Look:
    """One message, looked at because the lane did not serve it."""

    __slots__ = ("end", "name", "partition")

    def __init__(self, frames: bytes, at: int, longest: tuple[int, int]) -> None:
        self.end = message_end(frames, at)
        """0: the bytes are no message."""
        self.name = b""
        self.partition = -1
        end = len(frames)
        _, row, partition, _, _, name_at, name_end, *_ = parse(frames, at, end, end, *longest)
        if row is None:
            _, row, partition, name_at, name_end, _ = parse_batch(frames, at, end, *longest)
        if row is not None:
            self.name, self.partition = frames[name_at:name_end], partition


def message_end(data: bytes, at: int) -> int:
    """Where the message ends; 0: it does not, or has a broken frame."""
    while at + FRAME.size <= len(data):
        length, flags = FRAME.unpack_from(data, at)
        at += length
        if length < FRAME.size or at > len(data):
            return 0
        if flags & IS_FINAL:
            return at
    return 0


class FrameServing:
    """Implements `core.model.forwarded_frames.FrameServer`."""

    def __init__(self, code: LaneCode, lane: Lane, access: MapAccess, settings: Settings) -> None:
        self._lane = lane
        self._access = access
        self._settings = settings
        self._serve = code.serve_entries
        self._out = bytearray()
        self._unsealed = bytearray()
        self._sink = code.PrimarySink(lane, self._out, self._unsealed)
        limits = settings.limits
        self._longest = (limits.key_bytes + DATA_AT, limits.value_bytes + DATA_AT)
        self._names: dict[bytes, Served] = {}
        self._access_seen = -1

    def serve(
        self, parts: Sequence[tuple[int, bytes]], ids: tuple[bytes, int] | None, fenced: set[int]
    ) -> list[ServedPart]:
        if self._access.changes != self._access_seen:
            self._access_seen = self._access.changes
            self._names.clear()
        room = ROOM_BYTES
        found = []
        begin = 0
        for count, frames in parts:
            self._sink.ids = LaneIds(self._lane, ids[0], ids[1] + begin) if ids is not None else None
            self._sink.served = 0
            skipped = self._serve_part(count, frames, fenced, room)
            if self._unsealed and self._lane.settle():
                self._out += self._unsealed
                self._unsealed.clear()
            found.append(ServedPart(bytes(self._out), bytes(self._unsealed), skipped))
            room -= len(self._out) + len(self._unsealed)
            self._out.clear()
            self._unsealed.clear()
            begin += count
        self._sink.ids = None
        return found

    def _serve_part(self, count: int, frames: bytes, fenced: set[int], room: int) -> list[int]:
        sink, at = self._sink, 0
        skipped = []
        while at < len(frames):
            left = room - len(self._out) - len(self._unsealed)
            if not fenced:
                at = self._serve(frames, at, sink, self._names, self._longest, left)
                if at >= len(frames):
                    break
            look = Look(frames, at, self._longest)
            if self._learn(look.name):
                continue
            if not look.end:
                break
            if fenced and look.partition not in fenced:
                one = frames[at : look.end]
                if self._serve(one, 0, sink, self._names, self._longest, left) == len(one):
                    at = look.end
                    continue
            skipped.append(sink.served)
            fenced.add(look.partition)
            sink.served += 1
            at = look.end
        # A member that sent less than it said learns that nothing was done of the rest.
        return [*skipped, *range(sink.served, count)]

    def _learn(self, name: bytes) -> bool:
        """Whether the lane may serve this map, and did not know it."""
        if not name or name in self._names:
            return False
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return False
        known = 0 < len(text) <= MAP_NAME_MAX and not text.startswith(INTERNAL)
        if not known or self._settings.map(text).raft_zone or self._access.is_closed(text):
            return False
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        self._names[name] = text
        return True

    def places(self, frames: bytes) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        at = 0
        while at < len(frames):
            look = Look(frames, at, self._longest)
            if not look.end:
                break
            found.setdefault(look.name.decode(errors="replace"), set()).add(look.partition)
            at = look.end
        return found


PLAIN_WAYS = Ways(frames=partial(FrameServing, reference_lane))
"""A member without compiled parts, which serves the frames that others forward."""
