"""Pipelined sending of rows in columns to their owners: one batch is stored while the next one is made.

`RowSender` does not know how rows are laid out; a `RowBatch` cuts them into parcels, one message each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.client.blocking import PUT_BYTES_MAX, PUT_ROWS_MAX, Client, PutCount
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Broken, Connection
from holdfast.client_core.routing import PASSING, RoutingTable
from holdfast.core.model.operations import DEFAULT_TTL
from holdfast.errors import NotReady
from holdfast.wire import own

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Parcel:
    """Contents of one message: rows of one owner, grouped by partition."""

    owner: str | None
    partitions: list[int]
    counts: list[int]
    columns: own.ColumnBatch
    start: int
    kinds: bytes = b""
    ttls_ms: list[int] = field(default_factory=list)

    def spans(self, partitions: Iterable[int]) -> Iterator[Span]:
        wanted = set(partitions)
        at = self.start
        for partition, count in zip(self.partitions, self.counts, strict=True):
            if partition in wanted:
                yield at, at + count
            at += count

    @property
    def span(self) -> Span:
        return self.start, self.start + self.columns.rows


class RowBatch(Protocol):
    def __len__(self) -> int: ...

    def ordered(self, table: RoutingTable) -> RowBatch: ...

    def parcels(self, *, rows_max: int, bytes_max: int) -> Iterator[Parcel]: ...

    def only(self, spans: Sequence[Span]) -> RowBatch: ...


@dataclass(slots=True)
class _Posted:
    connection: Connection
    number: int
    parcel: Parcel


class RowSender:
    """Stores rows in one map. Rows whose partition moved, or whose outcome is unknown, are sent again: storing a row
    twice equals storing it once. If two rows have one key, either may win.
    """

    def __init__(self, client: Client, map_name: str, *, ttl_ms: int = DEFAULT_TTL) -> None:
        self.count = PutCount()
        self._client = client
        self._map = map_name
        self._ttl_ms = ttl_ms
        self._waiting: tuple[RowBatch, list[_Posted], list[Span], str] | None = None

    def send(self, rows: RowBatch) -> None:
        """Send these rows, then wait until those of the previous call are stored. Raises NotReady if rows
        cannot be stored for the client's timeout, and other errors of members.
        """
        posted = self._post(rows)
        # In this order: members store one batch while the next is made and sent.
        before, self._waiting = self._waiting, posted
        self._store(before)

    def finish(self) -> PutCount:
        """Wait until all rows are stored. Raises as `send` does."""
        self.settle()
        return self.count

    def settle(self) -> None:
        """Wait for rows in flight after an error, when no more will be sent. Raises as `send` does."""
        waiting, self._waiting = self._waiting, None
        self._store(waiting)

    def _post(self, rows: RowBatch) -> tuple[RowBatch, list[_Posted], list[Span], str]:
        """Send rows to owners that can be reached. Returns the rest, and the reason."""
        posted: list[_Posted] = []
        left: list[Span] = []
        why = ""
        try:
            table = self._client.known_table(self._map)
        except PASSING as passing:
            return rows, [], [(0, len(rows))], str(passing)
        rows = rows.ordered(table)
        for parcel in rows.parcels(rows_max=PUT_ROWS_MAX, bytes_max=PUT_BYTES_MAX):
            try:
                if parcel.owner is None:
                    raise NotReady(f"partition {parcel.partitions[0]} has no owner")
                connection = self._client.to(parcel.owner)
                number = connection.next_number()
                connection.post(
                    own.PutColumns(
                        number,
                        self._map,
                        parcel.partitions,
                        parcel.counts,
                        parcel.columns,
                        self._ttl_ms,
                        parcel.kinds,
                        parcel.ttls_ms,
                    )
                )
            except (Broken, *PASSING) as passing:
                left.append(parcel.span)
                why = str(passing)
            else:
                posted.append(_Posted(connection, number, parcel))
                self.count.messages += 1
        return rows, posted, left, why

    def _collect(self, posted: Sequence[_Posted]) -> tuple[list[Span], str]:
        left: list[Span] = []
        why = ""
        for one in posted:
            try:
                answer = one.connection.collect(one.number, own.PutDone)
            except (Broken, *PASSING) as passing:
                left.append(one.parcel.span)
                why = str(passing)
                continue
            if not answer.known:
                left.append(one.parcel.span)
                why = answer.why or "the member cannot say whether the backups hold them"
                continue
            again = list(one.parcel.spans(answer.moved))
            if again:
                left += again
                why = f"partition {answer.moved[0]} moved"
            self.count.rows += one.parcel.columns.rows - sum(end - start for start, end in again)
            self.count.kept += answer.kept
            self.count.partitions.update(set(one.parcel.partitions) - set(answer.moved))
        return left, why

    def _store(self, waiting: tuple[RowBatch, list[_Posted], list[Span], str] | None) -> None:
        if waiting is None:
            return
        rows, posted, left, why = waiting
        retries = BlockingRetries(self._client.timeout_s)
        while True:
            more, more_reason = self._collect(posted)
            before = len(rows)
            left, why = left + more, more_reason or why
            if not left:
                return
            rows = rows.only(left)
            if len(rows) < before:
                retries.progressed()
            if not retries.sleep():
                raise NotReady(
                    f"{len(rows)} rows could not be stored for {self._client.timeout_s:g} s: {why}"
                )
            self._client.refresh()
            self.count.rows_resent += len(rows)
            rows, posted, left, why = self._post(rows)


def check_writable(client: Client, map_name: str) -> None:
    """Send a bulk write without rows. Raises the rejection of the member; a temporary one is repeated for the
    client's timeout, and is NotReady then.
    """
    retries = BlockingRetries(client.timeout_s)
    while True:
        try:
            for member in client.known_table().data_members[:1]:
                connection = client.to(member.uuid)
                nothing = own.ColumnBatch.of([], [])
                connection.ask(
                    own.PutColumns(connection.next_number(), map_name, [], [], nothing), own.PutDone
                )
                return
            raise NotReady("there is no data member")
        except (Broken, *PASSING) as passing:
            if not retries.sleep():
                raise NotReady(
                    f"map {map_name!r} cannot be written for {client.timeout_s:g} s: {passing}"
                ) from passing
            client.refresh()
