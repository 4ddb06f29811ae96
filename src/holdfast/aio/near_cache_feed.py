"""Feed of a near cache: invalidations from all members, and the periodic check for lost ones (`near_cache`)."""

from __future__ import annotations

from struct import Struct
from typing import Protocol

from holdfast.aio.member_line import MemberLine
from holdfast.aio.member_views import answer_in, fixed_part, reader_of
from holdfast.aio.near_cache import NearCache
from holdfast.aio.request_forms import INVALIDATIONS, METADATA, RequestForm, form
from holdfast.core.model.keys import partition_of
from holdfast.errors import ProtocolError
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, EVENT, IS_NULL, UUID, message, text

ONE, SEVERAL = INVALIDATIONS + 2, INVALIDATIONS + 3
_INVALIDATION_FLAG = 256
_WISHES = Struct("<i?")
_ONE = Struct("<17s17sq")
_SEQUENCE = Struct("<iq")
_HISTORY = Struct("<i17s")
_LONG = Struct("<q")


class Routing(Protocol):
    partition_count: int
    route: list[MemberLine | None]


class NearCacheFeed:
    """Feeds one near cache. A `Subscriber`."""

    def __init__(self, name: str, cache: NearCache, client: Routing) -> None:
        self.name = name
        self.cache = cache
        self._client = client
        self._lines: set[MemberLine] = set()
        """Connections with a registration for invalidations."""
        self._route: list[MemberLine | None] = []
        """Owner of each partition when the feed last looked."""

    def request(self) -> tuple[RequestForm, bytes]:
        """The registration. Each member sends invalidations of its own partitions only."""
        return form(INVALIDATIONS, _WISHES.pack(_INVALIDATION_FLAG, True)), message([text(self.name)])

    def begun(self, line: MemberLine, again: bool) -> None:
        """The member sends invalidations: entries of its partitions may be kept from now on."""
        self._lines.add(line)
        self.rerouted()

    def lost(self, line: MemberLine) -> None:
        """The connection ended: entries of its partitions may become stale unnoticed."""
        self._lines.discard(line)
        self.rerouted()

    def closed(self) -> None:
        self.cache.clear()

    def rerouted(self) -> None:
        before, now = self._route, self._client.route
        self._route = list(now)
        fed = [line in self._lines for line in now]
        self.cache.feed(fed, lambda partition: before[partition] is not now[partition])

    # -- events

    def heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        if kind == ONE:
            self._one(whole)
        elif kind == SEVERAL:
            self._several(whole)

    def _one(self, whole: bytes) -> None:
        fixed_part(whole, EVENT.size, _ONE)
        _, history, sequence = _ONE.unpack_from(whole, EVENT.size)
        flags, payload = reader_of(whole).next()
        if flags & IS_NULL:
            self.cache.clear()
        else:
            self._changed(payload, history, sequence)

    def _several(self, whole: bytes) -> None:
        frames = reader_of(whole)
        keys = [frames.next()[1] for _ in frames.elements()]
        frames.next()
        histories, sequences = frames.next()[1], frames.next()[1]
        if len(histories) != UUID.size * len(keys) or len(sequences) != _LONG.size * len(keys):
            self.cache.clear()
            raise ProtocolError("keys, histories and sequences of invalidations differ in number")
        for place, (sequence,) in enumerate(_LONG.iter_unpack(sequences)):
            at = place * UUID.size
            self._changed(keys[place], histories[at : at + UUID.size], sequence)

    def _changed(self, payload: bytes, history: bytes, sequence: int) -> None:
        if len(payload) < 8:
            self.cache.clear()
            raise ProtocolError("the key of an invalidation is cut short")
        key_hash = int.from_bytes(payload[:4], "big", signed=True)
        key = payload[4:]
        partition = partition_of(key, key_hash, self._client.partition_count)
        self.cache.invalidated(key, partition, history, sequence)

    # -- lost invalidations

    async def repair(self, line: MemberLine) -> None:
        """Ask this member for its sequences and compare. Raises HoldfastError."""
        asked = form(METADATA, line.member)
        _, future = line.begin(asked, -1, message([BEGIN, text(self.name), END]))
        self.cache.repair(_stands(answer_in(asked, await future), self.name))


def _stands(whole: bytes, name: str) -> dict[int, tuple[bytes, int]]:
    """History and sequence of each partition in the answer. Raises ProtocolError."""
    frames = reader_of(whole)
    sequences: dict[int, int] = {}
    for _ in frames.elements():
        found = frames.next()[1]
        pairs = frames.next()[1]
        if len(pairs) % _SEQUENCE.size:
            raise ProtocolError("sequences of partitions are cut short")
        if found == name.encode():
            sequences = dict(_SEQUENCE.iter_unpack(pairs))
    histories = frames.next()[1]
    if len(histories) % _HISTORY.size:
        raise ProtocolError("histories of partitions are cut short")
    return {
        partition: (history, sequences.get(partition, 0))
        for partition, history in _HISTORY.iter_unpack(histories)
    }
