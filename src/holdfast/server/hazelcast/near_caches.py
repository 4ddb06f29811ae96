"""Invalidations for clients' near caches, and the metadata by which clients detect missed ones.

Each invalidation has a sequence (the map's update counter in the partition) and a UUID that differs for each partition
and each term of its primary, or of its leader in a zone. Example: after sequence 5 a client gets 7: it has missed one,
and fetches the entries again. If the UUID differs, another primary has taken over, and the client drops everything of
that partition. Members keep no state for this.

In a zone the leader of a partition sends the invalidations, to its own clients and through the owner of the partition
to the owner's (streams/E-1). It numbers them by its update counter, which follows the log.

- server/N-1: The invalidation of a write is sent in the next turn of the loop at the latest, and after all responses
  that contain the previous value.
- server/N-2: A new primary or leader notifies all near caches connected to it, because its predecessor may have crashed
  before it sent some invalidations.
- server/N-3: A new registration gets "invalidate all" first, if the map was ever written, or lives in a zone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct, pack

from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import ZONE_NEAR_CACHES
from holdfast.core.model.operations import EntryEvent, EventKind, WrittenEntries, WrittenRow
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import guarded, reject_reserved
from holdfast.server.hazelcast.objects import stored_text
from holdfast.wire.hazelcast.hazelcast_frames import (
    BEGIN,
    END,
    NULL,
    data,
    event,
    frame,
    message,
    response,
    text,
    uuid,
)
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import UNSUPPORTED, CallRefused

FETCH_METADATA = 0x013D00
ADD_LISTENER = 0x013F00
BATCH_MAX = 1000
"""Keys per event."""

HISTORIES = 4096
"""Most UUIDs of partitions that are kept."""

_ONE = Struct("<17s17sq")
_SEQUENCE = Struct("<iq")
_PARTITION_UUID = Struct("<i17s")

_ALL_CHANGED = frozenset({EventKind.INVALIDATED, EventKind.CLEAR_ALL, EventKind.EVICT_ALL})


@lru_cache(maxsize=HISTORIES)
def history_uuid(cluster: str, partition: int, term: int, group: str = "") -> bytes:
    """The UUID of a partition under one primary, or one leader of its group: the same on every member, and unique."""
    name = f"{cluster}/{partition}/{term}/{group}" if group else f"{cluster}/{partition}/{term}"
    drawn = blake2b(name.encode(), digest_size=16).digest()
    return b"\0" + drawn


class Invalidations:
    def __init__(self, talk: Conversation, call: Call) -> None:
        self._talk = talk
        self._call = call
        self._count = talk.grid.partition_count
        self._named = partition_of(stored_text(call.name), 0, self._count)
        """The partition of the map's name, to which Java clients attribute "invalidate all"."""
        self._changed: list[tuple[str, str, Sequence[WrittenRow]]] = []
        """Entries to drop: the member and the Raft group whose updates have changed them, and these."""
        self._all = False
        self._debounced = talk.grid.debounce(talk.callback("what near caches forget", self.tell))

    def listen(self) -> Callable[[], None]:
        grid, call = self._talk.grid, self._call
        unlisten = grid.listen(
            call.name,
            key=None,
            local_only=call.local_only,
            on_event=self._on_event,
            invalidations=True,
            on_written=self._on_written,
        )

        def end() -> None:
            unlisten()
            self._debounced.end()
            self._changed.clear()

        return end

    def _on_event(self, change: EntryEvent) -> None:
        if change.key is None:
            if change.kind in _ALL_CHANGED:
                self._all = True
        else:
            row = (change.kind, change.key, None, None, change.key_hash, change.sequence, change.term)
            self._changed.append((change.member, change.group, (row,)))
        self._debounced.request()

    def _on_written(self, written: WrittenEntries) -> None:
        self._changed.append((written.member, "", written.rows))
        self._debounced.request()

    def forget_all(self) -> None:
        self._all = True
        self.tell()

    def tell(self) -> None:
        talk, changed = self._talk, self._changed
        whole, self._all = self._all, False
        self._changed = []
        if whole:
            history, sequence = self._stands()
            talk.send(self._one(NULL, uuid(talk.grid.member_uuid), history, sequence))
        keys: list[bytes] = []
        sources: list[bytes] = []
        histories: list[bytes] = []
        sequences: list[int] = []
        for member, group, rows in changed:
            _, some, _, _, key_hashes, numbers, terms = zip(*rows, strict=True)
            keys += map(data, some, key_hashes)
            sources += [uuid(member)] * len(rows)
            histories += self._histories(some, key_hashes, terms, group)
            sequences += numbers
        if len(keys) == 1 or not talk.grid.batch_invalidations:
            for one in zip(keys, sources, histories, sequences, strict=True):
                talk.send(self._one(*one))
        else:
            for begin in range(0, len(keys), BATCH_MAX):
                part = slice(begin, begin + BATCH_MAX)
                talk.send(self._batch(keys[part], sources[part], histories[part], sequences[part]))

    def _histories(
        self, keys: Sequence[bytes], key_hashes: Sequence[int], terms: Sequence[int], group: str
    ) -> list[bytes]:
        cluster, count = self._talk.grid.cluster_id, self._count
        return [
            history_uuid(cluster, partition_of(key, key_hash, count), term, group)
            for key, key_hash, term in zip(keys, key_hashes, terms, strict=True)
        ]

    def _one(self, key: bytes, source: bytes, history: bytes, sequence: int) -> bytes:
        """`key`: its frame; `NULL`: the whole map."""
        call = self._call
        fixed = _ONE.pack(source, history, sequence)
        return message([event(call.kind + 2, call.correlation, fixed, self._named), key])

    def _stands(self) -> tuple[bytes, int]:
        """UUID and update counter of the partition of the map's name. If another member serves it, a UUID that
        differs from all others.
        """
        grid, name = self._talk.grid, self._call.name
        found = grid.local_copies.led(name, self._named)
        if found is None:
            return history_uuid(grid.cluster_id, self._named, 0), 0
        held = found.copy.maps.get(name)
        history = history_uuid(grid.cluster_id, self._named, found.term, found.group)
        return history, held.counter if held is not None else 0

    def _batch(
        self, keys: list[bytes], sources: list[bytes], histories: list[bytes], sequences: list[int]
    ) -> bytes:
        call = self._call
        return message(
            [
                event(call.kind + 3, call.correlation, b"", self._named),
                BEGIN,
                *keys,
                END,
                frame(b"".join(sources)),
                frame(b"".join(histories)),
                frame(pack(f"<{len(sequences)}q", *sequences)),
            ]
        )


def _add(talk: Conversation, call: Call) -> None:
    if talk.grid.zone_of(call.name) and talk.grid.level < ZONE_NEAR_CACHES:
        raise CallRefused(
            UNSUPPORTED,
            f"the map {call.name!r} lives in a zone, and has near caches from feature level {ZONE_NEAR_CACHES} on: "
            "holdfast cluster upgrade",
        )
    fed = Invalidations(talk, call)
    registration = talk.register(fed.listen)
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))
    if _was_written(talk, call.name):
        fed.forget_all()


def _was_written(talk: Conversation, name: str) -> bool:
    """Whether a client may have missed changes of the map, that is whether any were made. In a partition that was lost
    and began again empty (`epoch`), earlier writes are not counted any more. A map in a zone may have been written on
    other members only.
    """
    if talk.grid.zone_of(name):
        return True
    for copy in talk.grid.lane.leading:
        if copy is not None:
            held = copy.maps.get(name)
            if copy.epoch or (held is not None and held.counter):
                return True
    return False


def _metadata(talk: Conversation, call: Call) -> None:
    for name in call.names:
        reject_reserved(name)
    talk.answer(call, lambda: _telling_metadata(talk, call))


def _telling_metadata(talk: Conversation, call: Call) -> Generator[None, None, bytes]:
    grid = talk.grid
    frames = [response(call.kind + 1, call.correlation), BEGIN]
    served: dict[tuple[int, int, str], None] = {}
    for name in call.names:
        sequences: list[bytes] = []
        for partition in range(grid.partition_count):
            found = grid.local_copies.led(name, partition)
            if found is None:
                continue
            served[partition, found.term, found.group] = None
            held = found.copy.maps.get(name)
            if held is not None and held.counter:
                sequences.append(_SEQUENCE.pack(partition, held.counter))
        frames += (text(name), frame(b"".join(sequences)))
        yield
    frames.append(END)
    uuids = (
        _PARTITION_UUID.pack(partition, history_uuid(grid.cluster_id, partition, term, group))
        for partition, term, group in sorted(served)
    )
    frames.append(frame(b"".join(uuids)))
    return message(frames)


MESSAGES = {
    FETCH_METADATA: RequestKind(RequestLayout("member | names"), _metadata),
    ADD_LISTENER: RequestKind(RequestLayout("flags local_only | name"), guarded(_add)),
}
