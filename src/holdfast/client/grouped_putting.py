"""Rows in groups, each stored in one transaction

Whoever reads in transactions, or at a whole cut, sees all rows of a group or none.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count

from holdfast.client.blocking import Client, PutCount
from holdfast.client.connection import Broken, Connection
from holdfast.client.routing import PASSING, delays
from holdfast.core.model.operations import DEFAULT_TTL
from holdfast.core.model.transaction_orders import StoreTogether, TransactionAnswer, TransactionFate
from holdfast.errors import NotReady, Refused
from holdfast.wire import own

AHEAD_MAX = 4
"""Groups that are on their way at a time, each to another member."""
LABEL = "load"


@dataclass(slots=True)
class GroupedRows:
    """Some rows, key and value in their stored form, with the partitions of the keys."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    ttls_ms: list[int] = field(default_factory=list)
    """For each row, or none."""

    def add(self, other: GroupedRows) -> None:
        """These come after those that are here."""
        self.keys += other.keys
        self.values += other.values
        self.partitions += other.partitions
        self.ttls_ms += other.ttls_ms

    def take(self, rows: int) -> GroupedRows:
        """Take out the first so many."""
        taken = GroupedRows(self.keys[:rows], self.values[:rows], self.partitions[:rows], self.ttls_ms[:rows])
        del self.keys[:rows], self.values[:rows], self.partitions[:rows], self.ttls_ms[:rows]
        return taken


@dataclass(frozen=True, slots=True)
class _Sent:
    group: GroupedRows
    posted: tuple[Connection, int] | None
    """None: it could not be sent, `why` says why."""
    why: str = ""


class GroupSender:
    """Stores rows in one map, each `rows` of them in one transaction, in the order in which they are given.

    A group that was rolled back, or of which nobody knows what became of it, is stored again: storing it twice is
    storing it once. So of two groups with one key either may win.
    """

    def __init__(self, client: Client, map_name: str, rows: int, *, ttl_ms: int = DEFAULT_TTL) -> None:
        self.count = PutCount()
        """Right also when sending has failed."""
        self._client = client
        self._map = map_name
        self._rows = rows
        self._ttl_ms = ttl_ms
        self._left = GroupedRows()
        """Not a whole group yet."""
        self._sent: deque[_Sent] = deque()
        self._turns = count()

    def send(self, rows: GroupedRows) -> None:
        """Store these rows; what fills no group waits for the next ones, or for the end.

        Raises NotReady when a group cannot be stored for the client's timeout, and Refused when it never will be.
        """
        self._left.add(rows)
        while len(self._left.keys) >= self._rows:
            self._post_next(self._left.take(self._rows))

    def finish(self) -> PutCount:
        """Store what is left, as one group, and wait for what is on its way. Raises as `send` does."""
        if self._left.keys:
            self._post_next(self._left.take(self._rows))
        self.settle()
        return self.count

    def settle(self) -> None:
        """Wait for what is on its way, and begin nothing new. Raises as `send` does."""
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
        """Wait for the answer; store the group again until it is there."""
        deadline = time.monotonic() + self._client.timeout_s
        for delay in delays():
            why = self._retry_reason(sent)
            if not why:
                self.count.rows += len(sent.group.keys)
                self.count.partitions.update(sent.group.partitions)
                return
            if time.monotonic() + delay > deadline:
                raise NotReady(
                    f"{len(sent.group.keys)} rows could not be stored in one transaction for "
                    f"{self._client.timeout_s:g} s: {why}"
                )
            time.sleep(delay)
            self._client.refresh()
            self.count.rows_again += len(sent.group.keys)
            sent = self._post(sent.group)

    @staticmethod
    def _retry_reason(sent: _Sent) -> str:
        """Why it has to be sent again; empty when it is stored. Raises Refused when that would be of no use."""
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
    """Give it to one of the members, in turn. Raises Broken, and what `Client.to` raises."""
    members = client.known_table().data_members
    if not members:
        raise NotReady("there is no data member")
    connection = client.to(members[turn % len(members)].uuid)
    number = connection.next_number()
    connection.post(own.OrderTransaction(number, order))
    return connection, number


def grouped_put_problem(client: Client, map_name: str) -> str:
    """Why rows of this map cannot be stored in transactions, in words; empty when they can. Raises NotReady."""
    deadline = time.monotonic() + client.timeout_s
    for turn, delay in enumerate(delays()):
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
        if time.monotonic() + delay > deadline:
            raise NotReady(f"no member can be asked for {client.timeout_s:g} s: {why}")
        time.sleep(delay)
        client.refresh()
    raise AssertionError("delays never end")
