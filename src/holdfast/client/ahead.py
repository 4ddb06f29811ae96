"""Reads many partitions one after the other, and asks for the next one while the last one is processed.

    for partition, pages in read_ahead(client, Wanted("flights"), range(271)):
        ...

A partition is returned when all its pages have arrived; an interrupted one is read again from its beginning,
so no entry is returned twice. At most one answer is in flight, so a slow reader costs a member no more than
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.client.blocking import Client
from holdfast.client.connection import Broken, Connection
from holdfast.client.cut_handles import Cut, scan_cut
from holdfast.client_core.routing import PASSING, RoutingTable
from holdfast.wire import own

ROWS_MAX = 16_384
BYTES_MAX = 2 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    map: str
    fields: tuple[str, ...] | None = None
    """Only these fields of values that are JSON objects; empty: no values; None: whole values."""
    keys: Mapping[int, Sequence[bytes]] | None = None
    """By partition, in their stored form. None: all entries."""
    limit: int = 0
    cut: Cut | None = None
    spread: bool = False
    """At a cut: read from backups too, to share the work."""
    bytes_max: int = field(default=BYTES_MAX)

    def question(self, number: int, partition: int) -> own.Scan:
        return own.Scan(
            number,
            self.map,
            partition,
            ROWS_MAX,
            self.bytes_max,
            cut=b"" if self.cut is None else self.cut.id,
            keys=self.keys_of(partition),
            fields=None if self.fields is None else list(self.fields),
            limit=self.limit,
        )

    def keys_of(self, partition: int) -> list[bytes]:
        return [] if self.keys is None else list(self.keys[partition])

    def is_empty(self, partition: int) -> bool:
        return self.cut is not None and not self.cut.marks[self.map, partition].counter

    def holder(self, partition: int, table: RoutingTable) -> str | None:
        """The member to ask first; None if the partition is empty at the cut, or has no owner."""
        if self.cut is None:
            return table.owner(partition)
        if self.is_empty(partition):
            return None
        mark = self.cut.marks[self.map, partition]
        at = partition % len(mark.holders) if self.spread else 0
        return mark.holders[at]


def read_ahead(
    client: Client, wanted: Wanted, partitions: Sequence[int]
) -> Iterator[tuple[int, list[own.ColumnBatch]]]:
    """Each partition with all its pages, in this order.

    Follows partitions that move and members that are lost. Raises NotReady if a partition is not served for
    the client's timeout, CutLost if no member keeps the cut any more.
    """
    name = "" if wanted.cut is not None else wanted.map
    table = client.table(name)
    asked = _post(client, wanted, partitions[0], table) if partitions else None
    for at, partition in enumerate(partitions):
        pages = [] if wanted.is_empty(partition) else _collect(wanted, partition, asked)
        if pages is None:
            pages = _patiently(client, wanted, partition)
            table = client.table(name)
        following = partitions[at + 1] if at + 1 < len(partitions) else None
        # Before the yield: the caller processes this partition while the member reads the next one.
        asked = None if following is None else _post(client, wanted, following, table)
        yield partition, pages


def _post(
    client: Client, wanted: Wanted, partition: int, table: RoutingTable
) -> tuple[Connection, int] | None:
    holder = wanted.holder(partition, table)
    if holder is None:
        return None
    try:
        connection = client.to(holder)
        number = connection.next_number()
        connection.post(wanted.question(number, partition))
    except (Broken, *PASSING):
        return None
    return connection, number


def _collect(
    wanted: Wanted, partition: int, asked: tuple[Connection, int] | None
) -> list[own.ColumnBatch] | None:
    if asked is None:
        return None
    connection, number = asked
    try:
        page = connection.collect(number, own.Page)
        stands = page.counter, page.term
        pages = [page.columns]
        while page.more:
            page = connection.ask(own.NextPage(connection.next_number(), number), own.Page)
            pages.append(page.columns)
    except (Broken, *PASSING):
        return None
    if wanted.cut is not None:
        mark = wanted.cut.marks[wanted.map, partition]
        if stands != (mark.counter, mark.term):
            return None
    return pages


def _patiently(client: Client, wanted: Wanted, partition: int) -> list[own.ColumnBatch]:
    keys = wanted.keys_of(partition)
    if wanted.cut is None:
        return client.scan(
            wanted.map,
            partition,
            rows_max=ROWS_MAX,
            bytes_max=wanted.bytes_max,
            fields=wanted.fields,
            keys=keys,
            limit=wanted.limit,
        )
    pages = scan_cut(
        client,
        wanted.cut,
        wanted.map,
        partition,
        spread=wanted.spread,
        fields=wanted.fields,
        keys=keys,
        limit=wanted.limit,
        rows_max=ROWS_MAX,
        bytes_max=wanted.bytes_max,
    )
    return [page.columns for page in pages]
