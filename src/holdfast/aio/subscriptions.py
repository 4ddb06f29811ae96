"""Registrations of a client with its members: made on each connection, and again on later ones.

A member forgets the registrations of a connection that ends. Events are missed until the next connection has
registered; the subscriber learns of that gap by `begun(again=True)`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from holdfast.aio.member_line import MemberLine
from holdfast.client_core.message_decoding import answer_in, uuid_in
from holdfast.client_core.request_forms import RequestForm, form
from holdfast.client_core.retries import in_words
from holdfast.errors import HoldfastError
from holdfast.wire.hazelcast.hazelcast_frames import message, text


class Subscriber(Protocol):
    def request(self) -> tuple[RequestForm, bytes]:
        """The registration request and its last frames."""

    def heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        """Raises ProtocolError."""

    def begun(self, line: MemberLine, again: bool) -> None:
        """This member sends events from now on. `again`: there was a gap before."""

    def lost(self, line: MemberLine) -> None:
        """Events of this member are missed from now on."""

    def closed(self) -> None: ...


class Subscriptions:
    def __init__(self) -> None:
        self._ids: dict[Subscriber, dict[MemberLine, tuple[int, bytes]]] = {}

    async def begin(self, subscriber: Subscriber, lines: list[MemberLine]) -> None:
        """Register with these members and all later ones. Raises HoldfastError if all reject it."""
        self._ids[subscriber] = {}
        failed: list[tuple[MemberLine, HoldfastError]] = []
        for line in lines:
            try:
                await self._register(subscriber, line, again=False)
            except HoldfastError as error:
                failed.append((line, error))
            except BaseException:
                self._ids.pop(subscriber, None)
                raise
        if failed and not self._ids.get(subscriber):
            self._ids.pop(subscriber, None)
            raise in_words(failed[0][1])
        for line, why in failed:
            # The next connection to this member registers again.
            line.end(f"a registration failed: {why}")

    async def _register(self, subscriber: Subscriber, line: MemberLine, *, again: bool) -> None:
        held = self._ids.get(subscriber, {})
        if subscriber not in self._ids or line in held:
            return  # The connection opened just when `begin` was called, and registers already.
        asked, rest = subscriber.request()
        correlation, future = line.begin(asked, -1, rest)

        def heard(kind: int, whole: bytes) -> None:
            subscriber.heard(line, kind, whole)

        # Listen first: events may arrive together with the answer, before this coroutine runs again.
        line.listen(correlation, heard)
        held[line] = (correlation, b"")
        try:
            registration = uuid_in(answer_in(asked, await future))
        except BaseException:
            line.unlisten(correlation)
            held.pop(line, None)
            raise
        if self._ids.get(subscriber) is not held:
            line.unlisten(correlation)
        elif line in held:
            held[line] = (correlation, registration)
            subscriber.begun(line, again)

    async def admit(self, line: MemberLine) -> None:
        """Register all subscribers on a new connection. Raises HoldfastError."""
        for subscriber in list(self._ids):
            if subscriber not in self._ids:
                continue
            await self._register(subscriber, line, again=True)

    def lose(self, line: MemberLine) -> None:
        for subscriber, held in self._ids.items():
            if held.pop(line, None) is not None:
                subscriber.lost(line)

    def close(self) -> None:
        """The client is closed. Registrations end with their connections."""
        subscribers = list(self._ids)
        self._ids.clear()
        for subscriber in subscribers:
            subscriber.closed()

    async def end(self, subscriber: Subscriber, unlisten: int, name: str) -> None:
        """`unlisten`: the kind of the request. A member that cannot be reached forgets the registration with its
        connection.
        """
        for line, (correlation, registration) in self._ids.pop(subscriber, {}).items():
            line.unlisten(correlation)
            if not registration:
                continue
            with suppress(HoldfastError):
                _, future = line.begin(form(unlisten, registration), -1, message([text(name)]))
                await future
