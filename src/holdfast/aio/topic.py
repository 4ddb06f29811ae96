"""A topic for asyncio programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

from holdfast.aio.entry_listening import member_uuid
from holdfast.aio.event_listening import KEEP, EventListening, Listened
from holdfast.aio.member_line import MemberLine
from holdfast.client_core import request_forms as forms
from holdfast.client_core.message_decoding import fixed_part, reader_of
from holdfast.client_core.request_forms import RequestForm, form, last
from holdfast.core.model.collections import partition_of_name
from holdfast.core.model.operations import MAP_NAME_MAX
from holdfast.errors import ConfigError
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, EVENT, data, message, text

V = TypeVar("V")
_FIXED = Struct("<q17s")
_LOCAL_ONLY = b"\1"
"""Each member reports messages of its own partitions."""


@dataclass(frozen=True, slots=True)
class TopicMessage(Generic[V]):
    value: V
    published_ms: int
    """Milliseconds since 1970, by the clock of the member."""
    member: str
    """UUID of the member that sent it."""
    missed: bool = False
    """Messages before this one may have been missed: the connection to a member was lost in the meantime."""


class Publishing(Listened, Protocol):
    @property
    def partition_count(self) -> int: ...

    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        """See `Client.ask`."""


class TopicListening(EventListening[TopicMessage[Any]]):
    """Messages of one topic, for all listeners in the same order. An asynchronous iterator and context manager."""

    unlisten = forms.UNLISTEN_TO_TOPIC
    _missed = False

    def request(self) -> tuple[RequestForm, bytes]:
        return form(forms.LISTEN_TO_TOPIC, _LOCAL_ONLY), message([text(self.name)])

    def begun(self, line: MemberLine, again: bool) -> None:
        """A later connection has missed some messages before."""
        self._missed |= again

    def heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        """Raises ProtocolError."""
        published_ms, member = fixed_part(whole, EVENT.size, _FIXED)
        value = self.value_in(reader_of(whole).next())
        missed, self._missed = self._missed, False
        self.report(TopicMessage(value, published_ms, member_uuid(member), missed))


class Topic(Generic[V]):
    """One topic of one client; `V` is for type checkers. Messages are not stored: a listener gets those that are
    published while it is connected.

        news: Topic[str] = client.topic("news")
        async with await news.listen() as messages:
            await news.publish("started")
            async for message in messages:
                print(message.value)
    """

    def __init__(self, client: Publishing, name: str) -> None:
        """Raises ConfigError for an invalid name."""
        given: object = name  # Callers without a type checker pass anything.
        if not isinstance(given, str) or not 1 <= len(given) <= MAP_NAME_MAX:
            raise ConfigError(
                f"{name!r} cannot be a topic's name: it is a text of 1 to {MAP_NAME_MAX} characters"
            )
        self.name = name
        self._client = client

    async def publish(self, value: V) -> None:
        """Send a message to all listeners. Raises Refused, TypeError; Unknown: it may have been sent."""
        await self._ask(form(forms.PUBLISH, b"", text(self.name)), last(self._dump(value)))

    async def publish_all(self, values: Iterable[V]) -> None:
        """Send messages in this order, without others in between. Raises as `publish`."""
        stored = [self._dump(value) for value in values]
        if stored:
            rest = message([text(self.name), BEGIN, *map(data, stored), END])
            await self._ask(form(forms.PUBLISH_ALL, b""), rest)

    async def listen(
        self, on_message: Callable[[TopicMessage[V]], None] | None = None, *, keep: int = KEEP
    ) -> TopicListening:
        """Listen from now on: `on_message` is called with each message, or they are iterated over. `keep`: most
        messages that wait for iteration; if there are more, iteration ends with ListenerLags.
        """
        return await TopicListening(self.name, self._client, on_message, keep).begin()

    def _dump(self, value: V) -> bytes:
        return self._client.serializers.dump_value(value)

    async def _ask(self, form: RequestForm, rest: bytes) -> None:
        await self._client.ask(form, partition_of_name(self.name, self._client.partition_count or 1), rest)
