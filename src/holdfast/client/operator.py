"""Operator's part of the protocol: actions that are waited for, and partition events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.actions.operator_action import OperatorAction, OperatorQuery
from holdfast.client.action_messages import ask_status, request_of, value_of
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Broken, Connection, Credentials
from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.partition_events import News, Number
from holdfast.errors import HoldfastError, NotReady, Refused, Standing, Unknown, Unreachable
from holdfast.wire import own

LOOK_S = 0.25
ANSWER_S = 5.0
PING_S = 2.0
"""A watch that is silent for so long asks whether the member is alive."""
LATE_S = 5.0


class CarriedOut(NamedTuple):
    message: str
    value: Any
    """A value of the action's `result` type, if it has one."""


def act(
    address: Address,
    credentials: Credentials,
    action: OperatorAction,
    *,
    timeout_s: float,
    progress: Callable[[MemberStatus], None] = lambda status: None,
) -> str:
    """Send an action to the member at this address, and wait until it is done. Returns the member's message.

    `progress` is called with the member's status in the meantime. Raises Refused if the action has no effect,
    Standing if it was accepted but is not finished in time, Unknown if the member was lost before it answered,
    NotReady if it cannot be reached; and Denied.
    """
    return carry_out(address, credentials, action, timeout_s=timeout_s, progress=progress).message


def ask(address: Address, credentials: Credentials, query: OperatorQuery, *, timeout_s: float) -> Any:
    """The answer of the member at this address, of the query's `result` type. Raises as `act`."""
    return carry_out(address, credentials, query, timeout_s=timeout_s).value


def carry_out(
    address: Address,
    credentials: Credentials,
    action: OperatorAction,
    *,
    timeout_s: float,
    progress: Callable[[MemberStatus], None] | None = None,
) -> CarriedOut:
    """Raises as `act`."""
    try:
        connection = Connection(address, credentials, ANSWER_S)
    except Broken as broken:
        raise Unreachable(str(broken)) from broken
    try:
        number = connection.next_number()
        connection.post(request_of(number, action, timeout_s))
        deadline = time.monotonic() + timeout_s + LATE_S
        while not connection.has_answer(number) and time.monotonic() < deadline:
            try:
                if progress is not None:
                    _report(progress, connection)
                connection.wait(number, LOOK_S)
            except Broken:
                if not connection.has_answer(number):
                    raise
        if not connection.has_answer(number):
            raise _late(action, address)
        answer = connection.collect(number, own.Acted)
    except Broken as broken:
        if isinstance(action, OperatorQuery):
            raise Unreachable(str(broken)) from broken
        raise Unknown(
            f"{broken}; the command was sent, and there was no response: look at the log of this member"
        ) from broken
    finally:
        connection.close()
    return CarriedOut(answer.message, value_of(action, answer))


def is_gone(address: Address, credentials: Credentials) -> bool:
    """Whether no member can be reached there."""
    try:
        Connection(address, credentials, ANSWER_S).close()
    except Broken:
        return True
    return False


def _late(action: OperatorAction, address: Address) -> HoldfastError:
    late = f"{address} has not responded in time"
    if isinstance(action, OperatorQuery):
        return Unreachable(late)
    if action.declared.sent_once or action.declared.withdrawn:
        return Unknown(f"{late}; the command may be done, or not: check before you repeat it")
    return Standing(f"{late}; it may still carry out the command: check holdfast status")


def _report(progress: Callable[[MemberStatus], None], connection: Connection) -> None:
    """A member that is about to end may reject the query: its own answer counts."""
    try:
        status = ask_status(connection)
    except Refused:
        return
    progress(status)


def act_at_any(
    addresses: list[Address],
    credentials: Credentials,
    action: OperatorAction,
    *,
    timeout_s: float | None = None,
) -> CarriedOut:
    """Send a cluster-wide action or a query to any member, and to another one if that is lost. Raises as `act` does.
    `timeout_s`: that of the declaration by default.

    An action that is `sent_once` goes to another member only if the first one cannot be reached.
    """
    declared = action.declared
    asks_one = declared.sent_once or isinstance(action, OperatorQuery)
    deadline = time.monotonic() + (declared.timeout_s if timeout_s is None else timeout_s)
    left = list(addresses)
    asked: list[Address] = []
    silent: list[str] = []
    lost: Unknown | None = None

    def learn(status: MemberStatus) -> None:
        doors = (member.door for member in status.members)
        left.extend(found for found in doors if found not in left and found not in asked)

    while left:
        address = left.pop(0)
        asked.append(address)
        left_s = max(0.0, deadline - time.monotonic())
        try:
            return carry_out(
                address, credentials, action, timeout_s=left_s, progress=None if asks_one else learn
            )
        except Unreachable as gone:
            silent.append(str(gone))
        except Unknown as unknown:
            if declared.sent_once:
                raise
            lost = unknown
    raise lost or Unreachable(f"no member answers: {'; '.join(silent)}")


@dataclass(frozen=True, slots=True)
class Listening:
    status: MemberStatus


@dataclass(frozen=True, slots=True)
class Gap:
    """Events between the previous and the next one were missed."""


@dataclass(frozen=True, slots=True)
class Silence:
    why: str


class Watcher:
    """Partition events, from one member; if it is lost, from another one of the cluster."""

    def __init__(self, addresses: list[Address], credentials: Credentials) -> None:
        """Connects when `events` is iterated over. Other members are found from these addresses."""
        self._addresses = addresses
        self._credentials = credentials
        self._known: list[Address] = []
        self._last: Number | None = None
        self._listened = False
        self._uuids: set[str] = set()
        self.status: MemberStatus | None = None
        """From the watched member, a few seconds old at most."""

    def events(self) -> Iterator[News | Listening | Gap | Silence]:
        """Events from now on, without end, each once, also when another member takes over.

        Raises Denied, Unsupported or ProtocolError if a member rejects the watch.
        """
        retries = BlockingRetries(math.inf)
        silent = False
        while True:
            self._listened = False
            failures: list[str] = []
            for address in dict.fromkeys([*self._known, *self._addresses]):
                try:
                    yield from self._at(address)
                except (Broken, NotReady) as failed:
                    failures.append(str(failed))
                if self._listened:
                    break
            if self._listened:
                retries.progressed()
                silent = False
                continue
            if not silent:
                silent = True
                yield Silence("; ".join(failures))
            retries.sleep()

    def _at(self, address: Address) -> Iterator[News | Listening | Gap]:
        connection = Connection(address, self._credentials, ANSWER_S)
        try:
            status = self._look(connection)
            if self._last is None:
                self._last = connection.ask(own.Watch(connection.next_number()), own.Heard).last
            yield Listening(status)
            while True:
                number = connection.next_number()
                connection.post(own.Watch(number, self._last))
                while not connection.wait(number, PING_S):
                    self._look(connection)
                heard = connection.collect(number, own.Heard)
                self._last = heard.last
                if not heard.complete:
                    yield Gap()
                if any(not self._knows(news) for news in heard.news):
                    self._look(connection)
                yield from heard.news
        finally:
            connection.close()

    def _knows(self, news: News) -> bool:
        moved = news.migration
        return moved is None or {moved.destination, moved.source} - {None} <= self._uuids

    def _look(self, connection: Connection) -> MemberStatus:
        """Raises NotReady if the process is not a member now; Broken."""
        status = ask_status(connection)
        if status.state != "member":
            raise NotReady(f"{connection.address} is {status.state}")
        self._listened = True
        self._known = [member.door for member in status.members]
        self.status = status
        self._uuids.update(member.uuid for member in status.members)
        return status
