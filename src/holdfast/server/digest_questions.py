"""Digests for clients of Holdfast's own protocol that compare replicas: whole maps, now or at a cut, and key ranges."""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Final, assert_never

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.primary_backup.cuts import Pin
from holdfast.core.store.digest import RangeDigests, batch_digest, whole
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import AnyReplica, map_replica
from holdfast.server.flow import Work, slices
from holdfast.server.reply_channel import ReplyChannel
from holdfast.wire import own

DIGEST_ENTRIES_MAX = 10_000
"""A response ends with the partition that reaches this many entries, about 10 ms of work."""
BESIDE_ENTRIES: Final = 2000
"""Expiries, or partition hashes, per slice."""
_ENDS: Final = b"\xff end of "
_WORDS: Final = b"\xff word of "
"""Prefixes that make expiries and hashes differ from entries in the digest."""
_END = struct.Struct("<qq")
_WORD = struct.Struct("<q")

DigestQuestion = own.AskDigests | own.AskRanges


class DigestQuestions:
    """Answers these questions for one connection, slice by slice."""

    __slots__ = ("_grid", "_replies")

    def __init__(self, replies: ReplyChannel) -> None:
        self._replies = replies
        self._grid = replies.grid

    def answer(self, question: DigestQuestion) -> None:
        match question:
            case own.AskDigests():
                self._digests(question)
            case own.AskRanges():
                self._ranges(question)
            case _:
                assert_never(question)

    def _digests(self, question: own.AskDigests) -> None:
        if not self._replies.in_range(question.id, question.partitions):
            return
        if question.cut:
            self._replies.begin(question, self._add_up_cut(question))
        elif question.map is not None and self._grid.zone_of(question.map):
            self._zone_map_digests(question, question.map)
        else:
            self._replies.begin(question, self._add_up(question))

    def _zone_map_digests(self, question: own.AskDigests, name: str) -> None:
        """Add up when it is confirmed which partitions are led here."""
        grid, replies = self._grid, self._replies
        entries, copies = grid.zone_entries(name), grid.local_copies
        led = [partition for partition in question.partitions if copies.led(name, partition) is not None]
        if entries is None or not led:
            replies.begin(question, self._add_up_in_zone(question, name, frozenset()))
            return
        if not replies.may_wait(question.id):
            return

        def done(batch: ZoneBatchDone) -> None:
            replies.answered()
            serving = frozenset(led if batch.unconfirmed is None else ())
            replies.begin(question, self._add_up_in_zone(question, name, serving))

        replies.handed_over = True
        grid.zone_batch(ZoneBatch(entries.zone, reads=led), replies.on_done("AskDigests", question.id, done))

    def _add_up_in_zone(self, question: own.AskDigests, name: str, serving: frozenset[int]) -> Work:
        """`serving`: partitions whose leader is this member."""
        grid = self._grid
        leaders = grid.local_copies.leaders(name)
        held: list[own.PartitionDigest] = []
        answered = entries = 0
        for partition in question.partitions:
            if entries >= DIGEST_ENTRIES_MAX:
                break
            answered += 1
            found = grid.local_copies.held(name, partition)
            if found is None or leaders is None:
                continue
            digests: list[own.MapDigest] = []
            leads = partition in serving
            version = leaders[partition].version
            held.append(
                own.PartitionDigest(partition, 0, 0 if leads else -1, leads, digests, version, [], False)
            )
            replica = found.copy.maps.get(name)
            if replica is not None:
                part = _Snapshot(replica)
                entries += part.head.entries
                digests.append((yield from part.digest()))
        self._replies.send(own.Digests(question.id, grid.table_version(), answered, held))

    def _add_up(self, question: own.AskDigests) -> Work:
        grid = self._grid
        held: list[own.PartitionDigest] = []
        answered = entries = 0
        for partition in question.partitions:
            if entries >= DIGEST_ENTRIES_MAX:
                break
            answered += 1
            copy = grid.local_copies.outside_zones(partition)
            if copy is None:
                continue
            parts = [_Snapshot(one) for one in copy if question.map is None or one.name == question.map]
            digests: list[own.MapDigest] = []
            add = digests.append
            entries += sum(part.head.entries for part in parts)
            row = grid.row(partition)
            held.append(
                own.PartitionDigest(
                    partition,
                    copy.epoch,
                    row.index_of(MemberId(grid.member_uuid)),
                    grid.lane.leading[partition] is copy,
                    digests,
                    row.version,
                    list(row.behind),
                    grid.unfinished(partition),
                )
            )
            # Writes continue between two slices. The digest is that of the moment of the snapshot: it belongs to the
            # update counter in the same answer, which was read then, too.
            for part in parts:
                add((yield from part.digest()))
        self._replies.send(own.Digests(question.id, grid.table_version(), answered, held))

    def _add_up_cut(self, question: own.AskDigests) -> Work:
        grid = self._grid
        held: list[own.PartitionDigest] = []
        answered = entries = 0
        for partition in question.partitions:
            if entries >= DIGEST_ENTRIES_MAX:
                break
            answered += 1
            pins = [PinSnapshot(pin) for pin in grid.cuts.kept(question.cut, [partition], own.CUT_MAPS_MAX)]
            pins = [pin for pin in pins if question.map is None or pin.head.map == question.map]
            entries += sum(pin.head.entries for pin in pins)
            digests: list[own.MapDigest] = []
            add = digests.append
            if pins:
                held.append(own.PartitionDigest(partition, 0, -1, False, digests))
            for pin in pins:
                add((yield from pin.digest()))
        self._replies.send(own.Digests(question.id, grid.table_version(), answered, held))

    def _ranges(self, question: own.AskRanges) -> None:
        replies = self._replies
        if not replies.in_range(question.id, [question.partition]):
            return
        copy = self._grid.local_copies.outside_zones(question.partition)
        version = self._grid.row(question.partition).version
        if copy is None:
            replies.send(own.Ranges(question.id, version, 0, [], []))
            return
        held = copy.maps.get(question.map) or map_replica(question.map)
        answer = own.Ranges(question.id, version, held.counter, held.proven_lineage(), [])
        keys, values = list(held.state.entries), list(held.state.entries.values())
        replies.begin(question, self._add_up_ranges(answer, keys, values))

    def _add_up_ranges(self, answer: own.Ranges, keys: list[bytes], values: list[bytes]) -> Work:
        sums = RangeDigests.digests({})
        for begin, end in slices([len(value) for value in values]):
            if begin:
                yield
            some = RangeDigests.digests(dict(zip(keys[begin:end], values[begin:end], strict=True)))
            sums = [whole(pair) for pair in zip(sums, some, strict=True)]
        self._replies.send(msgspec.structs.replace(answer, digests=sums))


class _Snapshot:
    """The entries of one copy of a map at one moment."""

    __slots__ = ("_keys", "_values", "head")

    def __init__(self, held: AnyReplica) -> None:
        state = held.state
        entries, digest = (state.entries, 0) if isinstance(state, MapState) else ({}, state.digest())
        self.head = own.MapDigest(
            held.name,
            held.counter,
            len(entries),
            digest,
            list(held.targets),
            held.proven_lineage(),
        )
        """The answer; the digest of a map is still missing."""
        self._keys = list(entries)
        self._values = list(entries.values())

    def digest(self) -> Generator[None, None, own.MapDigest]:
        digest = yield from _add_up_entries(self._keys, self._values)
        return msgspec.structs.replace(self.head, digest=whole((self.head.digest, digest)))


def _add_up_entries(keys: Sequence[bytes], values: Sequence[bytes]) -> Generator[None, None, int]:
    digest = 0
    for begin, end in slices([len(value) for value in values]):
        if begin:
            yield
        digest = whole((digest, batch_digest(keys[begin:end], values[begin:end])))
    return digest


class PinSnapshot:
    """The content of a cut of one map in one partition; it may end while it is added up."""

    __slots__ = ("_ends", "_keys", "_values", "_words", "head")

    def __init__(self, pin: Pin) -> None:
        content = pin.content()
        self.head = own.MapDigest(pin.map, pin.counter, len(content), 0, [], pin.lineage, pin.index)
        """The answer; the digest is still missing."""
        self._keys = list(content)
        self._values = list(content.values())
        in_zone = bool(pin.index)
        self._ends = (
            [(key, one.ttl_ms, one.stored_ns) for key, one in pin.expiries.items()] if in_zone else []
        )
        self._words = list(pin.hashes.items()) if in_zone else []

    def digest(self) -> Generator[None, None, own.MapDigest]:
        digest = yield from _add_up_entries(self._keys, self._values)
        for begin in range(0, len(self._ends), BESIDE_ENTRIES):
            yield
            some = self._ends[begin : begin + BESIDE_ENTRIES]
            ends = [_END.pack(ttl_ms, stored_ns) for _, ttl_ms, stored_ns in some]
            digest = whole((digest, batch_digest([_ENDS + key for key, _, _ in some], ends)))
        for begin in range(0, len(self._words), BESIDE_ENTRIES):
            yield
            words = self._words[begin : begin + BESIDE_ENTRIES]
            packed = [_WORD.pack(word) for _, word in words]
            digest = whole((digest, batch_digest([_WORDS + key for key, _ in words], packed)))
        return msgspec.structs.replace(self.head, digest=digest)
