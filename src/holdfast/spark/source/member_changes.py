"""What the members tell a change stream: heads, changes, and the entries as they were at an update.

No copy of the entries as they were is kept anywhere. They are read as they are now, and what has changed since is taken
back, the latest change first: so they are the same whenever a batch is read again, as long as the members know the
changes since then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.client.ahead import Wanted, read_ahead
from holdfast.client.blocking import Client
from holdfast.client.change_reader import heads, read_changes
from holdfast.client.connection import Broken, Connection
from holdfast.client.replica_questions import ask_digests
from holdfast.client.routing import PASSING, RoutingTable, delays
from holdfast.errors import ChangesGone, NotReady
from holdfast.spark.source.offsets import BEGINNING, At, BadOffset, Place
from holdfast.wire import own

__all__ = ["Change", "ChangesGone", "GridHistory", "Head", "History", "changes_of", "undo"]

PAGE_ROWS = 8192
PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Head:
    """How far a map has come in a partition."""

    place: Place
    """The last safe update."""
    since: int = 0
    """The primary can tell every change after this update from its memory."""
    lineage: tuple[tuple[int, int], ...] = ()
    """Of which terms the updates are: from the counter start + 1 on, of this term; ascending."""

    def term_of(self, counter: int) -> int:
        """The term of an update up to the head; 0 of none."""
        return next((term for term, start in reversed(self.lineage) if start < counter), 0)

    def place_of(self, counter: int) -> Place:
        """An update up to the head."""
        return Place(self.term_of(counter), counter) if counter else BEGINNING


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an entry. `before` and `after` are None where there is no such value."""

    counter: int
    term: int
    kind: own.ChangeKind
    time_ms: int
    key: bytes
    before: bytes | None
    after: bytes | None
    transaction: bytes | None = None
    """The id of the transaction that has made it; None: it was made outside of any."""


class History(Protocol):
    """What a change stream asks of a cluster."""

    def cluster(self) -> str:
        """The id of the cluster."""

    def partition_count(self) -> int:
        """How many partitions it has."""

    def heads(self, name: str) -> dict[int, Head]:
        """The head of a map in each partition. Raises NotReady."""

    def sizes(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """How many entries a map has in each of these partitions; those of which nobody says it now are left out."""

    def changes(self, at: At, start: Place, end: Place) -> Iterator[Change]:
        """Every change in (start, end], in order. Raises ChangesGone, before the first is yielded, and NotReady."""

    def entries(self, at: At, place: Place) -> dict[bytes, bytes]:
        """Keys and values as they were after the update `place`. Raises ChangesGone and NotReady."""


def changes_of(pages: Sequence[own.Changes]) -> Iterator[Change]:
    """The changes in a member's answers, one by one."""
    for page in pages:
        keys, values = page.columns.split()
        # Old values are laid out as the new ones are.
        olds = own.ColumnBatch(
            page.columns.rows, page.columns.key_offsets, page.columns.keys, page.old_offsets, page.olds
        ).split()[1]
        rows = zip(
            page.counters,
            page.terms,
            page.kinds,
            page.times_ms,
            keys,
            olds,
            values,
            page.transaction_ids(),
            strict=True,
        )
        for counter, term, number, time_ms, key, old, value, transaction in rows:
            kind = own.ChangeKind(number)
            yield Change(
                counter,
                term,
                kind,
                time_ms,
                key,
                None if kind is own.ChangeKind.INSERT else old,
                None if kind is own.ChangeKind.REMOVE else value,
                transaction,
            )


def undo(now: Mapping[bytes, bytes], since: Sequence[Change]) -> dict[bytes, bytes]:
    """The entries as they were before these changes, which are given in order."""
    found = dict(now)
    for change in reversed(since):
        if change.before is None:
            found.pop(change.key, None)
        else:
            found[change.key] = change.before
    return found


class GridHistory:
    """The history of a running cluster."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        """`timeout_s`: how long an answer is tried for."""
        self._client = client
        self._timeout_s = timeout_s

    def cluster(self) -> str:
        """The id of the cluster."""
        return self._client.cluster_id

    def partition_count(self) -> int:
        """How many partitions it has."""
        return self._client.partition_count

    def table(self) -> RoutingTable:
        """Who holds what."""
        return self._client.table()

    def heads(self, name: str) -> dict[int, Head]:
        """The head of a map in each partition. Raises NotReady."""
        return self._heads(name, range(self.partition_count()))

    def _heads(self, name: str, partitions: Sequence[int]) -> dict[int, Head]:
        told = heads(self._client, name, partitions, timeout_s=self._timeout_s)
        return {partition: _head(head) for partition, head in told.items()}

    def sizes(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """How many entries a map has in each of these partitions; those of which nobody says it now are left out."""
        table = self._client.table()
        wanted: dict[str, list[int]] = {}
        for partition in partitions:
            owner = table.owner(partition)
            if owner is not None:
                wanted.setdefault(owner, []).append(partition)
        held, _ = ask_digests(self._client, wanted, name)
        return {
            digest.partition: told.entries
            for digest in held.values()
            for told in digest.maps
            if told.map == name
        }

    def changes(self, at: At, start: Place, end: Place) -> Iterator[Change]:
        """Every change in (start, end], in order. Raises ChangesGone, before the first is yielded, and NotReady."""
        name, partition = at
        return changes_of(
            read_changes(
                self._client,
                name,
                partition,
                start.counter,
                start.term,
                end.counter,
                upto_term=end.term,
                timeout_s=self._timeout_s,
            )
        )

    def entries(self, at: At, place: Place) -> dict[bytes, bytes]:
        """Keys and values as they were after the update `place`, those among them whose time was over but whose remove
        had no counter yet. Raises ChangesGone, NotReady, and BadOffset when the update of this number is of another
        term.
        """
        name, partition = at
        deadline = time.monotonic() + self._timeout_s
        why = ""
        for delay in delays():
            try:
                before, counter, now, head = self._scan(name, partition)
            except (Broken, *PASSING) as passing:
                why = str(passing)
            else:
                after = head.place
                if place.counter and after.counter >= place.counter:
                    _check_term(at, place, head)
                # What was read may hold updates that are not safe yet. Once they are, in the same term, they are those
                # that were read: a term has one primary.
                if after.counter >= counter >= place.counter and after.term == before.place.term:
                    return undo(now, list(self.changes(at, place, head.place_of(counter))))
                why = f"it was read at update {counter}, and stands at {after.counter} of term {after.term}"
            if time.monotonic() + delay > deadline:
                raise NotReady(
                    f"map {name!r}, partition {partition} cannot be read as it was after update {place.counter}, "
                    f"tried for {self._timeout_s:g} s: {why}"
                )
            time.sleep(delay)
        raise AssertionError("delays never end")

    def value(self, at: At, key: bytes) -> bytes | None:
        """The value that an entry has now; None when it is gone. Raises NotReady."""
        name, partition = at
        # By partition, not by key: a client may have given the key a partition of its own.
        for _, pages in read_ahead(self._client, Wanted(name, keys={partition: [key]}), [partition]):
            for page in pages:
                for _, value in zip(*page.split(), strict=True):
                    return value
        return None

    def _scan(self, name: str, partition: int) -> tuple[Head, int, dict[bytes, bytes], Head]:
        """The entries as they are and the update counter then, between two heads that the same member told: it was the
        primary. Raises Broken, and refusals that may pass.
        """
        client = self._client
        owner = client.table().owner(partition)
        if owner is None:
            raise NotReady(f"partition {partition} has no owner now")
        connection = client.to(owner)
        before = _head_by(connection, name, partition)
        number = connection.next_number()
        # An entry whose time is over is there until its remove has a counter. By the time of day it would be there in a
        # batch, and not there when the batch is read again.
        scan = own.Scan(number, name, partition, PAGE_ROWS, PAGE_BYTES, any_copy=True)
        page = connection.ask(scan, own.Page)
        counter = page.counter
        found: dict[bytes, bytes] = {}
        while True:
            keys, values = page.columns.split()
            found.update(zip(keys, values, strict=True))
            if not page.more:
                return before, counter, found, _head_by(connection, name, partition)
            page = connection.ask(own.NextPage(connection.next_number(), number), own.Page)


def _head_by(connection: Connection, name: str, partition: int) -> Head:
    """The head as this member tells it. Raises NotReady when it is not the primary, Broken, and what it refuses."""
    answer = connection.ask(own.AskHeads(connection.next_number(), name, [partition]), own.Heads)
    if not answer.heads:
        raise NotReady(f"{connection.address} does not serve partition {partition}")
    return _head(answer.heads[0])


def _head(told: own.Head) -> Head:
    place = Place(told.term, told.counter) if told.counter else BEGINNING
    return Head(place, told.since, tuple(told.lineage))


def _check_term(at: At, place: Place, head: Head) -> None:
    """Whether the update of this number is the one that is meant. Raises BadOffset."""
    term = head.term_of(place.counter)
    if term != place.term:
        raise BadOffset(
            f"map {at[0]!r}, partition {at[1]} has another history than the stream: its entries are wanted as they "
            f"were after update {place.counter} of term {place.term}, but that update is of term {term} there. Begin "
            "with a new checkpoint and startingPosition=snapshot, into an empty sink"
        )
