"""Client over blocking sockets for the command line, Spark tasks and other programs with one thread.

    with Client("127.0.0.1:5701") as client:
        print(client.status())

A client keeps one connection to each member that it uses. It must not be used from several threads.

A request goes to the owner of its partition in the last known table; for a map in a zone, to the leader in a
separate table. A partition that has moved answers MOVED, NOT_READY or CLOSING (`PASSING`): the request was
certainly not applied. The client then fetches a new table and sends it again after a growing delay, until
`timeout_s` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from operator import add, itemgetter
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import msgspec

from holdfast.actions.operator_action import OperatorQuery
from holdfast.client.action_messages import ask_on, ask_status
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Broken, Connection, Credentials
from holdfast.client_core.routing import (
    PASSING,
    PartitionRows,
    RoutingTable,
    error_of_outcome,
    group_by,
    group_rows,
    pack,
    parse_addresses,
)
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.ids import Address
from holdfast.core.model.keys import partition_of
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.operations import DEFAULT_TTL, READS, WHOLE, Op, Request, Value
from holdfast.errors import NoDataMember, NotReady, Refused, Unknown, Unreachable
from holdfast.wire import own

PUT_ROWS_MAX = 4096
PUT_BYTES_MAX = 1 << 20
"""Large enough to be cheap, too small to delay other clients of a member."""

T = TypeVar("T")


@dataclass(slots=True)
class PutCount:
    rows: int = 0
    kept: int = 0
    """Rows of kind `ADD` that were not stored because their key had another value."""
    messages: int = 0
    rows_resent: int = 0
    """Rows that were sent again, because their partition had moved or the outcome was unknown."""
    partitions: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ColumnRows:
    map: str
    keys: Sequence[bytes]
    values: Sequence[bytes]
    ttl_ms: int = DEFAULT_TTL
    kinds: bytes = b""
    ttls_ms: Sequence[int] = ()
    max_idles_ms: Sequence[int] = ()
    key_hashes: Sequence[int] = ()

    def __post_init__(self) -> None:
        columns = (self.kinds, self.ttls_ms, self.max_idles_ms, self.key_hashes)
        if len(self.values) != len(self.keys) or any(len(one) not in (0, len(self.keys)) for one in columns):
            raise ValueError("all columns have one value for each key")

    def groups(self, partition_count: int) -> list[PartitionRows]:
        if not self.key_hashes:
            return group_rows(self.keys, partition_count)
        pairs = zip(self.keys, self.key_hashes, strict=True)
        return group_by((partition_of(key, word, partition_count) for key, word in pairs), partition_count)

    def message(self, number: int, groups: list[PartitionRows]) -> own.PutColumns:
        rows = list(chain.from_iterable(group.rows for group in groups))
        return own.PutColumns(
            number,
            self.map,
            [group.partition for group in groups],
            [len(group.rows) for group in groups],
            own.ColumnBatch.of(_of_rows(self.keys, rows), _of_rows(self.values, rows)),
            self.ttl_ms,
            bytes(_of_rows(self.kinds, rows)) if self.kinds else b"",
            _of_rows(self.ttls_ms, rows) if self.ttls_ms else [],
            _of_rows(self.max_idles_ms, rows) if self.max_idles_ms else [],
            _of_rows(self.key_hashes, rows) if self.key_hashes else [],
        )


def _of_rows(column: Sequence[T], rows: list[int]) -> list[T]:
    return list(itemgetter(*rows)(column)) if len(rows) > 1 else [column[row] for row in rows]


class Client:
    def __init__(
        self,
        address: str | Iterable[str],
        *,
        cluster: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: str | bytes | None = None,
        timeout_s: float = 30.0,
        retry_unknown: bool = True,
        release: str | None = None,
        operates: bool = False,
        tls: ClientTls | None = None,
    ) -> None:
        """Create a client; it connects when it is first used.

        `timeout_s`: how long a call retries. `retry_unknown`: retry a write whose outcome is unknown, with the
        same request id, so that it is applied once, as long as its partition remembers the id
        (`replication.request_ids`). `release`: the version of Holdfast that members must run (`Unsupported`
        names a member with another one); any if left out. `operates`: the client only asks for status and
        table; members keep connections free for that when other clients use all others. `tls`: for members that
        use TLS.

        Raises: ConfigError.
        """
        self._seeds = parse_addresses(address)
        if isinstance(token, str):
            token = token.encode()
        self._credentials = Credentials(cluster, username, password, token, operates, tls)
        self._timeout_s = timeout_s
        self._retry_unknown = retry_unknown
        self._release = release
        self._uuid = uuid4().bytes
        self._requests = 0
        self._remembers = False
        self._connections: dict[Address, Connection] = {}
        self._known: RoutingTable | None = None
        self._tables: dict[str, RoutingTable] = {}
        """By map; under the empty name that of the cluster."""
        self._stale = True
        self._partition_count = 0
        self._cluster_id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._connections:  # Another thread may be making one.
            _, connection = self._connections.popitem()
            connection.close()

    # -- the cluster

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    @property
    def partition_count(self) -> int:
        if not self._partition_count:
            self._any()
        return self._partition_count

    @property
    def cluster_id(self) -> str:
        """It stays the same as long as the cluster keeps its data."""
        if not self._cluster_id:
            self._any()
        return self._cluster_id

    def status(self) -> MemberStatus:
        """Status of the first member that answers, and of the cluster as that member knows it."""
        return self._of_anyone(ask_status)

    def query(self, query: OperatorQuery) -> Any:
        return self._of_anyone(lambda connection: ask_on(connection, query))

    def table(self, map_name: str = "") -> RoutingTable:
        """The members and the partition table, fetched from a member now. If the map lives in a zone, the owner of a
        partition is its leader.
        """

        def ask(connection: Connection) -> RoutingTable:
            return RoutingTable(connection.ask(own.AskTable(connection.next_number(), map_name), own.TableIs))

        self._known = table = self._of_anyone(ask)
        if self._stale:
            self._tables.clear()
            self._stale = False
        self._tables[map_name] = table
        return table

    def known_table(self, map_name: str = "", *, fresh: bool = False) -> RoutingTable:
        """The last fetched table, unless `refresh` was called since; `fresh`: the same as `table()`."""
        known = None if fresh or self._stale else self._tables.get(map_name)
        return known if known is not None else self.table(map_name)

    def refresh(self) -> None:
        self._stale = True

    # -- single operations

    def execute(self, request: Request, *, idempotent: bool = False) -> Value:
        """Carry out one operation; a member that does not own the partition forwards it.

        Raises a Refused if it was certainly not applied, Unknown if it may have been, and Unreachable for a read that
        no member answers. Temporary rejections are retried until the timeout. Unknown outcomes are retried for reads,
        with `idempotent` (doing it twice equals once), and for writes that the cluster recognizes by their id
        (`retry_unknown`).
        """
        if request.op not in READS and request.op not in WHOLE and not request.id:
            # All tries of a write have one id. Example: PUT_IF_ABSENT is applied as id 7 on member 1, which
            # dies before it answers. Its backup, member 2, becomes the owner and has id 7 with the result, so
            # the second try returns that result and is not applied again.
            self._requests += 1
            number = self._requests.to_bytes(8, "big")
            request = msgspec.structs.replace(request, id=self._uuid + number)
        harmless = idempotent or request.op in READS
        doubt: Unknown | None = None
        # The first unknown outcome. A later rejection says nothing about that try: if SET is sent, the
        # connection breaks, and every retry is rejected with NotReady, then SET may still have been applied,
        # and the caller gets Unknown.
        retries = BlockingRetries(self._timeout_s)
        while True:
            try:
                return self._attempt(request)
            except (Refused, Unknown) as failed:
                trouble = failed
            if isinstance(trouble, Unknown):
                doubt = trouble
                again = harmless or (self._retry_unknown and self._remembers and bool(request.id))
            else:
                again = isinstance(trouble, PASSING)
            if not again or not retries.sleep():
                if isinstance(trouble, Unknown) and request.op in READS:
                    raise Unreachable(f"no answer: {trouble}") from trouble
                if doubt is None or doubt is trouble or request.op in READS:
                    raise trouble
                raise Unknown(f"{doubt}; then: {trouble}") from trouble
            self._stale = True

    def _attempt(self, request: Request) -> Value:
        try:
            connection = self._for(request)
        except Broken as broken:
            raise NotReady(str(broken)) from broken
        try:
            answer = connection.ask(own.Execute(connection.next_number(), request), own.Executed)
        except Broken as broken:
            raise Unknown(f"{broken}; {request.op.name} may or may not have been done") from broken
        trouble = error_of_outcome(answer.outcome)
        if trouble is not None:
            raise trouble
        return answer.outcome.value

    def get(self, map_name: str, key: bytes) -> bytes | None:
        value = self.execute(Request(Op.GET, map_name, [self._partition(key)], key))
        assert value is None or isinstance(value, bytes), value
        return value

    def set(self, map_name: str, key: bytes, value: bytes, *, ttl_ms: int = DEFAULT_TTL) -> None:
        request = Request(Op.SET, map_name, [self._partition(key)], key, value, ttl_ms=ttl_ms)
        self.execute(request, idempotent=True)

    def size(self, map_name: str) -> int:
        value = self.execute(Request(Op.SIZE, map_name, self._all_partitions()))
        assert isinstance(value, int), value
        return value

    def clear(self, map_name: str) -> int:
        """Remove every entry; returns how many there were. Counted again if the first answer is lost."""
        value = self.execute(Request(Op.CLEAR, map_name, self._all_partitions()), idempotent=True)
        assert isinstance(value, int), value
        return value

    def limits(self) -> tuple[int, int]:
        """Most bytes of a key and of a value, as a member reports them; 0: not reported."""
        hello = self._any().hello
        return hello.key_bytes_max, hello.value_bytes_max

    # -- columns

    def scan(
        self,
        map_name: str,
        partition: int,
        *,
        rows_max: int = 8192,
        bytes_max: int = 1 << 20,
        fields: Sequence[str] | None = None,
        keys: Sequence[bytes] = (),
        limit: int = 0,
    ) -> list[own.ColumnBatch]:
        """All entries of a map in one partition, at one moment, read from the partition's primary or leader.

        `fields`: only these fields of values that are JSON objects (empty: no values). `keys`: only these
        entries. `limit`: at most so many entries, in no order.

        If the partition moves before the scan begins, or its member is lost before it ends, the scan starts
        again at the new one. Raises NotReady if there is none until the timeout.
        """
        question = own.Scan(
            0,
            map_name,
            partition,
            rows_max,
            bytes_max,
            keys=list(keys),
            fields=None if fields is None else list(fields),
            limit=limit,
        )
        retries = BlockingRetries(self._timeout_s)
        while True:
            try:
                pages = pages_of(self._owner(partition, map_name), question)
            except (Broken, *PASSING) as passing:
                if not retries.sleep():
                    raise NotReady(
                        f"partition {partition} cannot be read for {self._timeout_s:g} s: {passing}"
                    ) from passing
                self._stale = True
            else:
                return [page.columns for page in pages]

    def put_columns(
        self,
        map_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        *,
        ttl_ms: int = DEFAULT_TTL,
        kinds: bytes = b"",
        ttls_ms: Sequence[int] = (),
        max_idles_ms: Sequence[int] = (),
        key_hashes: Sequence[int] = (),
        count: PutCount | None = None,
    ) -> PutCount:
        """Store many entries directly at the primaries of their partitions.

        Rows whose partition moved, or whose outcome is unknown, are sent again: storing a row twice equals
        storing it once. Keys should be unique; of two equal ones in a call either may win. `kinds`: one
        `own.PutKind` for each row, if not all are `SET`. `ttls_ms`, `max_idles_ms`, `key_hashes`: one for each
        row, if given. `count` is updated during the call, so it shows what was stored if the call fails. Raises
        NotReady if no row could be stored for the timeout.
        """
        count = count or PutCount()
        put = ColumnRows(map_name, keys, values, ttl_ms, kinds, ttls_ms, max_idles_ms, key_hashes)
        left = put.groups(self.partition_count)
        sizes = list(map(add, map(len, keys), map(len, values)))
        retries = BlockingRetries(self._timeout_s)
        first = True
        while left:
            before = sum(len(group.rows) for group in left)
            if not first:
                count.rows_resent += before
            left, why = self._put_groups(put, sizes, left, count)
            first = False
            if not left:
                break
            rows = sum(len(group.rows) for group in left)
            if rows < before:
                retries.progressed()
            if not retries.sleep():
                raise NotReady(f"{rows} rows could not be stored for {self._timeout_s:g} s: {why}")
            self._stale = True
        return count

    def _put_groups(
        self, put: ColumnRows, sizes: Sequence[int], groups: list[PartitionRows], count: PutCount
    ) -> tuple[list[PartitionRows], str]:
        """One round: a few messages to each owner, all in flight at the same time. Returns the rest, and the
        reason.
        """
        left: list[PartitionRows] = []
        why = ""
        posted: list[tuple[Connection, int, list[PartitionRows]]] = []
        try:
            by_owner = self._by_owner(groups, put.map)
        except PASSING as passing:
            return groups, str(passing)
        for owner, mine in by_owner.items():
            try:
                connection = self.to(owner) if owner else None
            except (Broken, *PASSING) as passing:
                connection, why = None, str(passing)
            if connection is None:
                left += mine
                why = why or f"partition {mine[0].partition} has no owner"
                continue
            bytes_max = min(PUT_BYTES_MAX, connection.hello.frame_bytes_max // 2)
            for packed in pack(mine, sizes, rows_max=PUT_ROWS_MAX, bytes_max=bytes_max):
                message = put.message(connection.next_number(), packed)
                try:
                    connection.post(message)
                except Broken as broken:
                    left += packed
                    why = str(broken)
                else:
                    posted.append((connection, message.id, packed))
                    count.messages += 1
        for connection, number, packed in posted:
            try:
                answer = connection.collect(number, own.PutDone)
            except (Broken, *PASSING) as passing:
                left += packed
                why = str(passing)
                continue
            if not answer.known:
                left += packed
                why = answer.why or "the member cannot say whether the backups hold them"
                continue
            moved = set(answer.moved)
            stored = [group for group in packed if group.partition not in moved]
            left += [group for group in packed if group.partition in moved]
            why = f"partition {answer.moved[0]} moved" if moved else why
            count.rows += sum(len(group.rows) for group in stored)
            count.kept += answer.kept
            count.partitions.update(group.partition for group in stored)
        return left, why

    # -- finding the right member

    def _by_owner(self, groups: list[PartitionRows], map_name: str) -> dict[str | None, list[PartitionRows]]:
        table = self.known_table(map_name)
        _check_data_members(table)
        found: dict[str | None, list[PartitionRows]] = {}
        for group in groups:
            found.setdefault(table.owner(group.partition), []).append(group)
        return found

    def _partition(self, key: bytes) -> int:
        return partition_of(key, 0, self.partition_count)

    def _all_partitions(self) -> list[int]:
        return list(range(self.partition_count))

    def _for(self, request: Request) -> Connection:
        """Connection to the owner for a request about one partition, if known; else to any member."""
        if len(request.partitions) == 1 and not self._stale:
            with suppress(Broken, *PASSING):
                return self._owner(request.partitions[0], request.map if request.map in self._tables else "")
        return self._any()

    def _owner(self, partition: int, map_name: str) -> Connection:
        table = self.known_table(map_name)
        owner = table.owner(partition)
        if owner is None:
            _check_data_members(table)
            raise NotReady(f"partition {partition} has no owner now")
        return self.to(owner)

    def to(self, member: str) -> Connection:
        """Raises NotReady if the member is not in the table, Broken if it cannot be reached."""
        table = self._known if self._known is not None and not self._stale else self.table()
        row = table.members.get(member)
        if row is None:
            raise NotReady(f"{member} is no member now")
        connection = self._connect(Address(row.host, row.client_port))
        if connection.hello.member != member:
            raise NotReady(f"{row.address} is {connection.hello.member} now, not {member}")
        return connection

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or connection.ended:
            connection = Connection(address, self._credentials, self._timeout_s)
            self._check_cluster(connection)
            self._connections[address] = connection
        return connection

    def _check_cluster(self, connection: Connection) -> None:
        cluster_id = connection.hello.cluster_id
        if self._cluster_id and cluster_id and cluster_id != self._cluster_id:
            connection.close()
            raise Refused(
                f"{connection.address} is in another cluster now: {cluster_id}, not {self._cluster_id}"
            )
        connection.check_release(self._release)
        self._cluster_id = cluster_id
        self._partition_count = connection.hello.partition_count
        self._remembers = connection.hello.request_ids > 0

    def _any(self) -> Connection:
        """Connection to the first address that answers: the given ones, then members of the last table."""
        return self._of_anyone(lambda connection: connection)

    def _of_anyone(self, ask: Callable[[Connection], T]) -> T:
        """Run `ask` on the first member that can be reached. Raises NotReady if there is none."""
        failures: list[str] = []
        for address in self._addresses():
            try:
                return ask(self._connect(address))
            except Broken as broken:
                failures.append(str(broken))
        raise Unreachable("no member answers: " + "; ".join(failures))

    def _addresses(self) -> Iterator[Address]:
        known = self._known.members.values() if self._known is not None else ()
        yield from dict.fromkeys([*self._seeds, *(Address(row.host, row.client_port) for row in known)])


def pages_of(connection: Connection, question: own.Scan) -> list[own.Page]:
    """The id of the question is ignored. Raises Broken, or the error of the member's fault."""
    number = connection.next_number()
    pages = [connection.ask(msgspec.structs.replace(question, id=number), own.Page)]
    while pages[-1].more:
        pages.append(connection.ask(own.NextPage(connection.next_number(), number), own.Page))
    return pages


def _check_data_members(table: RoutingTable) -> None:
    if not table.data_members:
        raise NoDataMember(
            "the cluster has lite members alone, which hold no data; start one that is not lite"
        )
