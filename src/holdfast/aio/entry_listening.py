"""Entry listeners: changes of a map, sent by the members that made them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from uuid import UUID

from holdfast.aio.event_listening import KEEP, EventListening, Listened
from holdfast.aio.member_line import MemberLine
from holdfast.client_core.message_decoding import fixed_part, reader_of
from holdfast.client_core.request_forms import LISTEN, LISTEN_TO_KEY, UNLISTEN, RequestForm, form
from holdfast.serialization.entry_changes import ChangeKind, EntryChange
from holdfast.wire.hazelcast.hazelcast_frames import EVENT, data, message, text

_WISHES = Struct("<?i?")
_FIXED = Struct("<i17si")


ALL = sum(ChangeKind)


@lru_cache(maxsize=64)
def member_uuid(raw: bytes) -> str:
    """The protocol writes a null flag and two halves, each with its last byte first."""
    return "" if raw[0] else str(UUID(bytes=raw[8:0:-1] + raw[:8:-1]))


class EntryListening(EventListening[EntryChange]):
    """Changes of one map, in order for each key. An asynchronous iterator and context manager.

    Each change is reported once, by the member that made it. Changes are missed while a member is not
    connected; then there is one change of kind `MISSED`.

        async with await flights.listen() as changes:
            async for change in changes:
                print(change.kind, change.key)
    """

    unlisten = UNLISTEN

    def __init__(
        self,
        name: str,
        client: Listened,
        on_change: Callable[[EntryChange], None] | None = None,
        keep: int = KEEP,
        *,
        key: bytes | None = None,
        include_value: bool = True,
    ) -> None:
        super().__init__(name, client, on_change, keep)
        self._key = key
        self._include_value = include_value

    def request(self) -> tuple[RequestForm, bytes]:
        """Each member reports changes of its own partitions."""
        wishes = _WISHES.pack(self._include_value, ALL, True)
        if self._key is None:
            return form(LISTEN, wishes), message([text(self.name)])
        return form(LISTEN_TO_KEY, wishes), message([text(self.name), data(self._key)])

    def begun(self, line: MemberLine, again: bool) -> None:
        """The member reports changes from now on; a later connection has missed some before."""
        if again:
            self.report(EntryChange(ChangeKind.MISSED))

    def heard(self, line: MemberLine, kind: int, whole: bytes) -> None:
        """Raises ProtocolError."""
        number, member, count = fixed_part(whole, EVENT.size, _FIXED)
        frames = reader_of(whole)
        key, value, old = (self.value_in(frames.next()) for _ in range(3))
        try:
            what = ChangeKind(number)
        except ValueError:
            return  # A kind that was not requested.
        self.report(EntryChange(what, key, value, old, count, member_uuid(member)))
