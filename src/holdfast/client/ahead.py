"""Many partitions read one after the other, each whole, with the next one asked for while the last is worked on.

    for partition, pages in read_ahead(client, Wanted("flights"), range(271)):
        ...

A partition is handed out when all its pages are here, so what is lost half-way is read again from its beginning, and
no entry is handed out twice. At most one answer is on its way: a member has not more to do for a slow reader than
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.client.blocking import Client
from holdfast.client.connection import Broken, Connection
from holdfast.client.cut_handles import Cut, scan_cut
from holdfast.client.routing import PASSING, RoutingTable
from holdfast.wire import own

ROWS_MAX = 16_384
BYTES_MAX = 2 << 20
"""Of a page: with fewer, larger pages nothing is gained."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of each partition."""

    map: str
    fields: tuple[str, ...] | None = None
    """Only these fields of values that are JSON objects; empty: no values; None: whole values."""
    keys: Mapping[int, Sequence[bytes]] | None = None
    """Partition -> the only keys that are wanted of it, in their stored form. None: all entries of all partitions."""
    limit: int = 0
    """At most so many entries of each partition; 0: all."""
    cut: Cut | None = None
    """As it was at this cut; None: as it is."""
    spread: bool = False
    """At a cut: ask backups, too, so that they share the work."""
    bytes_max: int = field(default=BYTES_MAX)

    def question(self, number: int, partition: int) -> own.Scan:
        """The question for one partition."""
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
        """The only keys wanted of a partition; empty: all."""
        return [] if self.keys is None else list(self.keys[partition])

    def is_empty(self, partition: int) -> bool:
        """Whether it is known without asking that there is nothing."""
        return self.cut is not None and not self.cut.marks[self.map, partition].counter

    def holder(self, partition: int, table: RoutingTable) -> str | None:
        """The member that is asked first; None when nobody need be asked, or nobody can."""
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
    """Each partition with all its pages, in this order; without pages when it has no entries.

    Follows partitions that move and members that are lost. Raises NotReady when a partition is not served until the
    client's timeout, and CutLost when nobody keeps the cut any more.
    """
    table = client.table()
    asked = _post(client, wanted, partitions[0], table) if partitions else None
    for at, partition in enumerate(partitions):
        pages = [] if wanted.is_empty(partition) else _collect(wanted, partition, asked)
        if pages is None:
            pages = _patiently(client, wanted, partition)
            table = client.table()
        following = partitions[at + 1] if at + 1 < len(partitions) else None
        # Before this one is handed out: its rows are made while the member looks for the next ones.
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
    """All pages of what was asked; None when they cannot be had from there."""
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
    """All pages, from whoever has them, as long as the client's patience lasts."""
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
