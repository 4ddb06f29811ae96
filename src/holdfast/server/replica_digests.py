"""Digests of zone replicas at a place of their log, for clients that compare replicas."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Final, Protocol

from holdfast.core.raft_partition.marked_copies import MarkedMap, ReplicaAtMark
from holdfast.core.store.digest import batch_digest, whole
from holdfast.server.flow import Work, slices
from holdfast.wire import own

ENTRIES_MAX: Final = 10_000
"""A response ends with the partition that reaches this many entries, about 10 ms of work."""
NUMBER_MAX: Final = 1 << 53
"""Limit of an index."""
PLACE_MAX: Final = 1 << 31
"""Limit of a zone's or partition's number."""
BESIDE_ENTRIES: Final = 2000
"""Expiries, or partition hashes, per slice."""
_ENDS: Final = b"\xff end of "
_WORDS: Final = b"\xff word of "
"""Prefixes that make expiries and hashes differ from entries in the digest."""
_END = struct.Struct("<qq")
_WORD = struct.Struct("<q")


class ReplicaHolder(Protocol):
    @property
    def node(self) -> str: ...

    def zone_replica(self, zone: int, partition: int, index: int) -> ReplicaAtMark | None: ...


def question_problem(question: own.AskZoneDigests) -> str:
    if len(question.partitions) != len(question.indexes):
        return "each partition has one index"
    places = [question.zone, *question.partitions]
    if not all(0 <= place < PLACE_MAX for place in places):
        return "there is no such zone, or partition"
    if not all(0 <= index <= NUMBER_MAX for index in question.indexes):
        return "there is no such index"
    return ""


def summing(
    holder: ReplicaHolder, question: own.AskZoneDigests, say: Callable[[own.ZoneDigests], None]
) -> Work:
    held: list[own.ZoneCopyDigest] = []
    answered = entries = 0
    for partition, index in zip(question.partitions, question.indexes, strict=True):
        if entries >= ENTRIES_MAX:
            break
        answered += 1
        found = holder.zone_replica(question.zone, partition, index)
        if found is None:
            continue
        kept = found.kept
        if kept is None:
            held.append(own.ZoneCopyDigest(partition, found.applied, found.last))
            continue
        digests: list[own.ZoneMapDigest] = []
        add = digests.append
        for one in kept.maps:
            if question.map is None or one.name == question.map:
                entries += len(one.keys)
                add((yield from _sum_up(one)))
        held.append(own.ZoneCopyDigest(partition, found.applied, found.last, kept.term, kept.beside, digests))
    say(own.ZoneDigests(question.id, holder.node, answered, held))


def _sum_up(held: MarkedMap) -> Generator[None, None, own.ZoneMapDigest]:
    digest = 0
    for begin, end in slices([len(value) for value in held.values]):
        if begin:
            yield
        digest = whole((digest, batch_digest(held.keys[begin:end], held.values[begin:end])))
    for begin in range(0, len(held.expiries), BESIDE_ENTRIES):
        yield
        some = held.expiries[begin : begin + BESIDE_ENTRIES]
        ends = [_END.pack(ttl_ms, stored_ns) for _, ttl_ms, stored_ns in some]
        digest = whole((digest, batch_digest([_ENDS + key for key, _, _ in some], ends)))
    for begin in range(0, len(held.hashes), BESIDE_ENTRIES):
        yield
        words = held.hashes[begin : begin + BESIDE_ENTRIES]
        packed = [_WORD.pack(word) for _, word in words]
        digest = whole((digest, batch_digest([_WORDS + key for key, _ in words], packed)))
    return own.ZoneMapDigest(held.name, held.counter, len(held.keys), digest)
