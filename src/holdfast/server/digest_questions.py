"""Digests of copies for clients of Holdfast's own protocol that compare them: whole maps, ranges of keys, zones."""

from __future__ import annotations

from collections.abc import Generator
from typing import assert_never

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.store.digest import RangeDigests, batch_digest, whole
from holdfast.core.store.map_state import MapState
from holdfast.core.store.replica import AnyReplica, map_replica
from holdfast.server import replica_digests as replicas
from holdfast.server.flow import Work, slices
from holdfast.server.reply_channel import ReplyChannel
from holdfast.wire import own

DIGEST_ENTRIES_MAX = 10_000
"""An answer to `AskDigests` ends with the partition that reaches so many entries: some 10 ms of work."""

DigestQuestion = own.AskDigests | own.AskZoneDigests | own.AskRanges


class DigestQuestions:
    """Answers these questions for one connection, slice by slice."""

    __slots__ = ("_grid", "_replies")

    def __init__(self, replies: ReplyChannel) -> None:
        self._replies = replies
        self._grid = replies.grid

    def answer(self, question: DigestQuestion) -> None:
        """Begin to add up, or reject the question."""
        match question:
            case own.AskDigests():
                self._digests(question)
            case own.AskZoneDigests():
                self._zone_digests(question)
            case own.AskRanges():
                self._ranges(question)
            case _:
                assert_never(question)

    def _digests(self, question: own.AskDigests) -> None:
        if self._replies.in_range(question.id, question.partitions):
            self._replies.begin(question, self._add_up(question))

    def _add_up(self, question: own.AskDigests) -> Work:
        grid = self._grid
        held: list[own.PartitionDigest] = []
        answered = entries = 0
        for partition in question.partitions:
            if entries >= DIGEST_ENTRIES_MAX:
                break
            answered += 1
            copy = grid.local_copy(partition)
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
            # Writes go on between two slices. The digest is that of the moment of the snapshot: it belongs to the
            # update counter in the same answer, which was read then, too.
            for part in parts:
                add((yield from part.digest()))
        self._replies.send(own.Digests(question.id, grid.table_version(), answered, held))

    def _zone_digests(self, question: own.AskZoneDigests) -> None:
        if problem := replicas.question_problem(question):
            self._replies.fault(question.id, own.FaultKind.MALFORMED, problem)
            return
        work = replicas.summing(self._grid, question, self._replies.send)
        self._replies.begin(question, work)

    def _ranges(self, question: own.AskRanges) -> None:
        replies = self._replies
        if not replies.in_range(question.id, [question.partition]):
            return
        copy = self._grid.local_copy(question.partition)
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
        """Add up, slice by slice."""
        digest = self.head.digest
        for begin, end in slices([len(value) for value in self._values]):
            if begin:
                yield
            digest = whole((digest, batch_digest(self._keys[begin:end], self._values[begin:end])))
        return msgspec.structs.replace(self.head, digest=digest)
