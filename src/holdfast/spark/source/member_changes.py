"""Data of members for a change stream: heads, changes, and the entries as of an update.

No old state of entries is stored. `GridHistory.entries` reads the present entries and undoes later changes, the
latest first. So a batch that is read again has the same entries, as long as the members still have the changes
since then. Example: the state after update 17 is wanted, and the scan shows update 19 with {a: 1, b: 2}. Change
19 set b (before: none) and change 18 set a (before: 0): undone, that is {a: 0}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from holdfast.client.ahead import Wanted, read_ahead
from holdfast.client.blocking import Client
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.change_reader import heads, read_changes
from holdfast.client.connection import Broken, Connection
from holdfast.client.replica_questions import ask_digests
from holdfast.client_core.routing import PASSING, RoutingTable
from holdfast.errors import ChangesGone, NotReady
from holdfast.spark.source.offsets import BEGINNING, At, BadOffset, Place
from holdfast.wire import own

__all__ = ["Change", "ChangesGone", "GridHistory", "Head", "History", "changes_of", "undo"]

PAGE_ROWS = 8192
PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Head:
    """Position of the newest safe change of a map in a partition."""

    place: Place
    since: int = 0
    """The primary has every change after this update in memory."""
    lineage: tuple[tuple[int, int], ...] = ()
    """Terms of the updates as (term, start), ascending: updates from start + 1 on are of that term. Term 0: the gap
    of a map that was moved (`own.Head.lineage`).
    """

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Moves of the map up to the head: the last update before each, and the one after which it continues."""
        return tuple(
            (end, start + 1)
            for (gap, end), (_, start) in pairwise(self.lineage)
            if not gap and start < self.place.counter
        )

    def term_of(self, counter: int) -> int:
        return next((term for term, start in reversed(self.lineage) if start < counter), 0)

    def place_of(self, counter: int) -> Place:
        return Place(self.term_of(counter), counter) if counter else BEGINNING


@dataclass(frozen=True, slots=True)
class Change:
    counter: int
    term: int
    kind: own.ChangeKind
    time_ms: int
    key: bytes
    before: bytes | None
    after: bytes | None
    transaction: bytes | None = None


class History(Protocol):
    def cluster(self) -> str: ...

    def partition_count(self) -> int: ...

    def heads(self, name: str) -> dict[int, Head]:
        """Raises NotReady."""

    def sizes(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """Number of entries of a map in each of these partitions, if it can be found out now."""

    def changes(self, at: At, start: Place, end: Place) -> Iterator[Change]: ...

    def entries(self, at: At, place: Place) -> dict[bytes, bytes]:
        """The entries as of the update `place`. Raises ChangesGone, NotReady."""


def changes_of(pages: Sequence[own.Changes]) -> Iterator[Change]:
    for page in pages:
        keys, values = page.columns.split()
        # Old values have the same layout as new ones.
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
    """The entries before these changes, which are in order."""
    found = dict(now)
    for change in reversed(since):
        if change.before is None:
            found.pop(change.key, None)
        else:
            found[change.key] = change.before
    return found


class GridHistory:
    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def cluster(self) -> str:
        return self._client.cluster_id

    def partition_count(self) -> int:
        return self._client.partition_count

    def table(self) -> RoutingTable:
        return self._client.table()

    def heads(self, name: str) -> dict[int, Head]:
        return self._heads(name, range(self.partition_count()))

    def _heads(self, name: str, partitions: Sequence[int]) -> dict[int, Head]:
        told = heads(self._client, name, partitions, timeout_s=self._timeout_s)
        return {partition: _head(head) for partition, head in told.items()}

    def sizes(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        table = self._client.table(name)
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
        """Keys and values as of the update `place`, including entries that had expired but whose removal had no
        counter yet.

        Raises ChangesGone, NotReady, and BadOffset if the update with this number is of another term.
        """
        name, partition = at
        retries = BlockingRetries(self._timeout_s)
        while True:
            try:
                before, counter, now, head = self._scan(name, partition)
            except (Broken, *PASSING) as passing:
                why = str(passing)
            else:
                after = head.place
                if place.counter and after.counter >= place.counter:
                    _check_term(at, place, head)
                # The scan may contain updates that are not safe yet. When they have become safe in the same
                # term, they are the ones that were read, because a term has only one primary.
                if after.counter >= counter >= place.counter and after.term == before.place.term:
                    return undo(now, list(self.changes(at, place, head.place_of(counter))))
                why = f"it was read at update {counter}, and is now at {after.counter} of term {after.term}"
            if not retries.sleep():
                raise NotReady(
                    f"map {name!r}, partition {partition} cannot be read as it was after update {place.counter}, "
                    f"tried for {self._timeout_s:g} s: {why}"
                )

    def value(self, at: At, key: bytes) -> bytes | None:
        """The present value of an entry. Raises NotReady."""
        name, partition = at
        # Ask by partition, not by key: a client may have chosen the partition of the key itself.
        for _, pages in read_ahead(self._client, Wanted(name, keys={partition: [key]}), [partition]):
            for page in pages:
                for _, value in zip(*page.split(), strict=True):
                    return value
        return None

    def _scan(self, name: str, partition: int) -> tuple[Head, int, dict[bytes, bytes], Head]:
        """The present entries and their update counter, between two heads from the same member, which shows
        that it was the primary all the time. Raises Broken, and rejections that may pass.
        """
        client = self._client
        owner = client.table(name).owner(partition)
        if owner is None:
            raise NotReady(f"partition {partition} has no owner now")
        connection = client.to(owner)
        before = _head_by(connection, name, partition)
        number = connection.next_number()
        # Read every copy, also of an expired entry, until its removal has a counter. If the clock decided, the entry
        # could be in a batch and be missing when the batch is read again.
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
    """Raises NotReady if this member is not the primary; Broken and its rejections."""
    answer = connection.ask(own.AskHeads(connection.next_number(), name, [partition]), own.Heads)
    if not answer.heads:
        raise NotReady(f"{connection.address} does not serve partition {partition}")
    return _head(answer.heads[0])


def _head(told: own.Head) -> Head:
    place = Place(told.term, told.counter) if told.counter else BEGINNING
    return Head(place, told.since, tuple(told.lineage))


def _check_term(at: At, place: Place, head: Head) -> None:
    """Raises BadOffset if the update with this number is of another term."""
    term = head.term_of(place.counter)
    if term != place.term:
        raise BadOffset(
            f"map {at[0]!r}, partition {at[1]} has another history than the stream: its entries are wanted as they "
            f"were after update {place.counter} of term {place.term}, but that update is of term {term} there. Begin "
            "with a new checkpoint and startingPosition=snapshot, into an empty sink"
        )
