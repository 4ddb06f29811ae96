"""Reads replicas from the members themselves: digests, key ranges, entries, tables.

Requests go to all members before the first response is awaited, so the responses are of nearly the same
moment. Silent members are left out of the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol, TypeVar

from holdfast.client.blocking import Client
from holdfast.client.connection import Broken, Connection
from holdfast.client_core.routing import PASSING, RoutingTable
from holdfast.errors import ProtocolError
from holdfast.wire import own

CANNOT_ASK = (Broken, *PASSING)
PAGE_ROWS = 8192
PAGE_BYTES = 1 << 20

AnswerType = TypeVar("AnswerType", bound=own.Answer)


@dataclass(frozen=True, slots=True)
class EntryCopy:
    value: bytes
    ttl_ms: int = 0
    max_idle_ms: int = 0
    key_hash: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaPage:
    counter: int
    entries: dict[bytes, EntryCopy]


class Connects(Protocol):
    def to(self, member: str, /) -> Connection:
        """Raises one of `CANNOT_ASK` when there is no connection."""
        ...


class _Talk:
    def __init__(self, client: Connects) -> None:
        self._client = client
        self.silent: set[str] = set()

    def connection(self, member: str) -> Connection | None:
        if member in self.silent:
            return None
        try:
            return self._client.to(member)
        except CANNOT_ASK:
            self.silent.add(member)
            return None

    def post(self, member: str, connection: Connection, question: own.Question) -> bool:
        try:
            connection.post(question)
        except Broken:
            self.silent.add(member)
            return False
        return True

    def collect(
        self, member: str, connection: Connection, number: int, kind: type[AnswerType]
    ) -> AnswerType | None:
        try:
            return connection.collect(number, kind)
        except CANNOT_ASK:
            self.silent.add(member)
            return None


def ask_digests(
    client: Connects, wanted: Mapping[str, Sequence[int]], only: str | None = None, cut: bytes = b""
) -> tuple[dict[tuple[str, int], own.PartitionDigest], set[str]]:
    """Digests of the copies that these members hold of their partitions, by member and partition; and the members that
    are silent. `only`: of one map. `cut`: of the content that is kept for this cut.
    """
    talk = _Talk(client)
    held: dict[tuple[str, int], own.PartitionDigest] = {}
    rest = {member: partitions for member, partitions in wanted.items() if partitions}
    while rest:
        posted: list[tuple[str, Connection, int]] = []
        for member, partitions in rest.items():
            connection = talk.connection(member)
            if connection is not None:
                number = connection.next_number()
                question = own.AskDigests(number, list(partitions), only, cut)
                if talk.post(member, connection, question):
                    posted.append((member, connection, number))
        again: dict[str, Sequence[int]] = {}
        for member, connection, number in posted:
            answer = talk.collect(member, connection, number, own.Digests)
            if answer is None:
                continue
            if not answer.answered:
                raise ProtocolError(f"{connection.address} answered for no partition")
            held |= {(member, one.partition): one for one in answer.held}
            if answer.answered < len(rest[member]):
                again[member] = rest[member][answer.answered :]
        rest = again
    return held, talk.silent


def ask_ranges(client: Connects, members: Iterable[str], partition: int, name: str) -> dict[str, own.Ranges]:
    """The digests of the 64 key ranges of a map, by member, without silent ones."""
    talk = _Talk(client)
    posted: list[tuple[str, Connection, int]] = []
    for member in members:
        connection = talk.connection(member)
        if connection is not None:
            number = connection.next_number()
            if talk.post(member, connection, own.AskRanges(number, partition, name)):
                posted.append((member, connection, number))
    answers = {
        member: talk.collect(member, connection, number, own.Ranges) for member, connection, number in posted
    }
    return {member: answer for member, answer in answers.items() if answer is not None}


def read_ranges(
    client: Connects, member: str, partition: int, name: str, ranges: list[int]
) -> ReplicaPage | None:
    """The entries of these key ranges in a member's copy: an empty page without a copy, None when it is
    silent.
    """
    try:
        connection = client.to(member)
        number = connection.next_number()
        scan = own.Scan(number, name, partition, PAGE_ROWS, PAGE_BYTES, any_copy=True, ranges=ranges)
        page = connection.ask(scan, own.Page)
        part = ReplicaPage(page.counter, {})
        _take(part, page)
        while page.more:
            page = connection.ask(own.NextPage(connection.next_number(), number), own.Page)
            _take(part, page)
    except CANNOT_ASK:
        return None
    return part


def _take(part: ReplicaPage, page: own.Page) -> None:
    keys, values = page.columns.split()
    for columns in (page.ttls_ms, page.max_idles_ms, page.key_hashes):
        if columns and len(columns) != len(keys):
            raise ProtocolError(f"{len(keys)} entries with {len(columns)} of what belongs to them")
    rows = zip(
        keys,
        values,
        page.ttls_ms or repeat(0),
        page.max_idles_ms or repeat(0),
        page.key_hashes or repeat(0),
        strict=False,
    )
    for key, value, ttl_ms, max_idle_ms, key_hash in rows:
        part.entries[key] = EntryCopy(value, ttl_ms, max_idle_ms, key_hash)


def ask_tables(client: Client, members: Iterable[str]) -> dict[str, RoutingTable]:
    """Without silent members."""
    found: dict[str, RoutingTable] = {}
    for member in members:
        try:
            connection = client.to(member)
            found[member] = RoutingTable(connection.ask(own.AskTable(connection.next_number()), own.TableIs))
        except CANNOT_ASK:
            continue
    return found
