"""Stores rows in groups, each in one transaction, so that transactional readers and whole cuts see all of it or
none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from holdfast.client.blocking import Client, PutCount
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Broken, Connection
from holdfast.client_core.routing import PASSING
from holdfast.core.model.operations import DEFAULT_TTL
from holdfast.core.model.transaction_orders import StoreTogether, TransactionAnswer, TransactionFate
from holdfast.errors import NotReady, Refused
from holdfast.wire import own

AHEAD_MAX = 4
LABEL = "load"


@dataclass(slots=True)
class GroupedRows:
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    ttls_ms: list[int] = field(default_factory=list)

    def add(self, other: GroupedRows) -> None:
        self.keys += other.keys
        self.values += other.values
        self.partitions += other.partitions
        self.ttls_ms += other.ttls_ms

    def take(self, rows: int) -> GroupedRows:
        taken = GroupedRows(self.keys[:rows], self.values[:rows], self.partitions[:rows], self.ttls_ms[:rows])
        del self.keys[:rows], self.values[:rows], self.partitions[:rows], self.ttls_ms[:rows]
        return taken


@dataclass(frozen=True, slots=True)
class _Sent:
    group: GroupedRows
    posted: tuple[Connection, int] | None
    """None: it could not be sent, for the reason `why`."""
    why: str = ""


class GroupSender:
    """Stores rows in one map, in order, `rows` of them in each transaction.

    A group that was rolled back, or whose outcome is unknown, is stored again: storing it twice equals storing it once.
    If two groups have one key, either may win.
    """

    def __init__(self, client: Client, map_name: str, rows: int, *, ttl_ms: int = DEFAULT_TTL) -> None:
        self.count = PutCount()
        self._client = client
        self._map = map_name
        self._rows = rows
        self._ttl_ms = ttl_ms
        self._left = GroupedRows()
        self._sent: deque[_Sent] = deque()
        self._turns = count()

    def send(self, rows: GroupedRows) -> None:
        """Rows that fill no group wait for the next call, or for `finish`.

        Raises NotReady if a group cannot be stored for the client's timeout, Refused if it never can be.
        """
        self._left.add(rows)
        while len(self._left.keys) >= self._rows:
            self._post_next(self._left.take(self._rows))

    def finish(self) -> PutCount:
        """Store the rest as one group, and wait for groups in flight. Raises as `send` does."""
        if self._left.keys:
            self._post_next(self._left.take(self._rows))
        self.settle()
        return self.count

    def settle(self) -> None:
        """Wait for groups in flight, and start none. Raises as `send` does."""
        while self._sent:
            self._store(self._sent.popleft())

    def _post_next(self, group: GroupedRows) -> None:
        if len(self._sent) >= AHEAD_MAX:
            self._store(self._sent.popleft())
        self._sent.append(self._post(group))

    def _post(self, group: GroupedRows) -> _Sent:
        order = StoreTogether(self._map, group.keys, group.values, self._ttl_ms, group.ttls_ms, LABEL)
        try:
            posted = _post(self._client, order, next(self._turns))
        except (Broken, *PASSING) as passing:
            return _Sent(group, None, str(passing))
        self.count.messages += 1
        return _Sent(group, posted)

    def _store(self, sent: _Sent) -> None:
        retries = BlockingRetries(self._client.timeout_s)
        while True:
            why = self._retry_reason(sent)
            if not why:
                self.count.rows += len(sent.group.keys)
                self.count.partitions.update(sent.group.partitions)
                return
            if not retries.sleep():
                raise NotReady(
                    f"{len(sent.group.keys)} rows could not be stored in one transaction for "
                    f"{self._client.timeout_s:g} s: {why}"
                )
            self._client.refresh()
            self.count.rows_resent += len(sent.group.keys)
            sent = self._post(sent.group)

    @staticmethod
    def _retry_reason(sent: _Sent) -> str:
        """Why the group must be sent again; empty if it is stored. Raises Refused if a retry is useless."""
        if sent.posted is None:
            return sent.why
        connection, number = sent.posted
        try:
            answer = connection.collect(number, own.TransactionSays).answer
        except (Broken, *PASSING) as passing:
            return str(passing)
        if answer.fate is TransactionFate.NOT_DONE:
            raise Refused(answer.why)
        return "" if answer.fate is TransactionFate.DONE else answer.why or answer.fate.name


def _post(client: Client, order: StoreTogether, turn: int) -> tuple[Connection, int]:
    """Send a group to the members in turn. Raises Broken, and errors of `Client.to`."""
    members = client.known_table().data_members
    if not members:
        raise NotReady("there is no data member")
    connection = client.to(members[turn % len(members)].uuid)
    number = connection.next_number()
    connection.post(own.OrderTransaction(number, order))
    return connection, number


def grouped_put_problem(client: Client, map_name: str) -> str:
    """Why rows of this map cannot be stored in transactions; empty if they can. Raises NotReady."""
    retries = BlockingRetries(client.timeout_s)
    for turn in count():
        try:
            connection, number = _post(client, StoreTogether(map_name, [], []), turn)
            answer: TransactionAnswer = connection.collect(number, own.TransactionSays).answer
        except (Broken, *PASSING) as passing:
            why = str(passing)
        else:
            if answer.fate is TransactionFate.NOT_DONE:
                return answer.why
            if answer.fate is TransactionFate.DONE:
                return ""
            why = answer.why
        if not retries.sleep():
            raise NotReady(f"no member can be asked for {client.timeout_s:g} s: {why}")
        client.refresh()
    raise AssertionError("the count has no end")
