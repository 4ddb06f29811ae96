"""Transactions of the asyncio client.

async with client.transaction() as transaction:
    accounts = transaction.map("accounts")
    balance = await accounts.get_for_update("ann")
    await accounts.set("ann", balance - 10)

All requests of a transaction use one connection. The member at its other end, the coordinator, rolls the transaction
back when the connection ends before the commit has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from holdfast.aio.asyncio_map import checked_name, milliseconds
from holdfast.aio.member_line import MemberLine
from holdfast.client_core import message_decoding as views
from holdfast.client_core import request_forms as forms
from holdfast.client_core.near_cache import NearCache
from holdfast.client_core.request_forms import RequestForm, last
from holdfast.client_core.retries import MAYBE, LineBroken, LineClosed, Retries, in_words, retry_reason
from holdfast.errors import HoldfastError, ProtocolError, Refused, RolledBack, Unknown
from holdfast.serialization.serializers import Serializers
from holdfast.wire.hazelcast.hazelcast_frames import INT, LONG, UUID, data, message, text

K = TypeVar("K")
V = TypeVar("V")
_AS_CONFIGURED = LONG.pack(-1)
_KEPT_IN_LOG = INT.pack(1)
"""Backups of the transaction's log and its type (two phases), which Hazelcast's members want to know."""
_TWO_PHASES = INT.pack(2)


CANCELLED = "an operation was cancelled, and may belong to the transaction or not"


class Connected(Protocol):
    serializers: Serializers

    def line_for(self, partition: int) -> MemberLine | None: ...

    async def wait_to_retry(self, retries: Retries | None, why: str) -> Retries:
        """See `Client.wait_to_retry`."""

    def near_cache(self, name: str) -> NearCache | None: ...

    def next_thread(self) -> int:
        """See `Client.next_thread`."""


class Transaction:
    """One transaction. Leaving the `async with` block commits it; an error in the block rolls it back.

    Raises RolledBack if nothing of it was applied, and Unknown if the outcome of the commit is not known: all of it was
    or will be applied, or nothing. After an operation that failed or was cancelled, nothing of the transaction is
    applied, even if its error was caught in the block. A commit that is cancelled may have been applied.
    """

    def __init__(self, client: Connected, timeout_s: float) -> None:
        self._client = client
        self._thread = LONG.pack(client.next_thread())
        if timeout_s < 0:
            raise ValueError("timeout_s must not be negative (0: transactions.timeout_ms)")
        fixed = LONG.pack(round(timeout_s * 1000)) + _KEPT_IN_LOG + _TWO_PHASES + self._thread
        self._begin = forms.form(forms.BEGIN_TRANSACTION, fixed, alone=True)
        self._line: MemberLine | None = None
        self._uuid = b""
        self._failed = ""
        """Why nothing of it may be committed; empty: it may."""
        self._written: list[tuple[NearCache, bytes]] = []

    @property
    def id(self) -> str:
        """The id that `holdfast transactions list` and change streams show; empty before the transaction begins."""
        if not self._uuid:
            return ""
        _, most, least = UUID.unpack(self._uuid)
        return f"{most:016x}{least:016x}"

    @property
    def serializers(self) -> Serializers:
        return self._client.serializers

    def map(self, name: str) -> TransactionalMap[Any, Any]:
        """The map as this transaction sees it: committed values, and its own changes. Raises ConfigError for an invalid
        name.
        """
        return TransactionalMap(self, checked_name(name), self._client.near_cache(name))

    # -- begin and end

    async def __aenter__(self) -> Self:
        if self._line is not None:
            raise Refused("a transaction begins once; make another one")
        retries: Retries | None = None
        while True:
            line = self._client.line_for(-1)
            why = "no member is connected"
            if line is not None:
                try:
                    whole = await self._ask(line, self._begin, b"")
                except HoldfastError as failed:
                    # If it has begun after all, it ends with its connection, or at its timeout.
                    why = retry_reason(self._begin, failed)
                else:
                    self._line, self._uuid = line, views.uuid_in(whole)
                    return self
            retries = await self._client.wait_to_retry(retries, why)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._roll_back(wait=not isinstance(error, asyncio.CancelledError))
            return
        if self._failed:
            await self._roll_back(wait=True)
            raise RolledBack(self._failed)
        self._forget_written()
        try:
            await self._commit()
        finally:
            self._forget_written()

    async def _commit(self) -> None:
        line = self._line
        assert line is not None, "the block was entered"
        try:
            await _has_room(line)
        except asyncio.CancelledError:
            # The commit was not sent: without this the locks would stay until the timeout.
            await self._roll_back(wait=False)
            raise
        try:
            await _exchange(line, self._form_of(forms.COMMIT_TRANSACTION), b"")
        except LineClosed as closed:
            raise RolledBack(str(closed)) from closed
        except (LineBroken, ProtocolError) as lost:
            raise Unknown(f"{lost}: {MAYBE}, as a whole") from lost
        except views.NotAnswered as failed:
            told = in_words(failed)
            if isinstance(told, Refused):
                await self._roll_back(wait=True)
                raise RolledBack(str(told)) from failed
            raise told from failed

    async def _roll_back(self, *, wait: bool) -> None:
        """Send it at once, even while the send buffer is full: it is small, and a task that waits may be cancelled.
        Errors are ignored: the caller gets another one, and the coordinator rolls back at the timeout anyway.
        """
        line, form = self._line, self._form_of(forms.ROLL_BACK_TRANSACTION)
        assert line is not None, "the block was entered"
        try:
            if wait:
                await _exchange(line, form, b"")
            else:
                line.begin(form, -1, b"")[1].add_done_callback(_ignore)
        except HoldfastError:
            pass

    def _form_of(self, kind: int) -> RequestForm:
        return forms.form(kind, self._uuid + self._thread, alone=True)

    def _forget_written(self) -> None:
        """A read between the write and the commit may have kept the former value."""
        for cache, stored in self._written:
            cache.forget((stored,))

    # -- operations

    async def operate(self, kind: int, name: bytes, rest: bytes, *, fixed: bytes = b"") -> bytes:
        """The whole response. `name`: the frame of the map's name; `fixed`: further fixed-size parameters; `rest`:
        frames that follow, the last one flagged final. Raises RolledBack and other kinds of Refused.
        """
        line = self._usable_line()
        form = forms.form(kind, self._uuid + self._thread + fixed, name)
        try:
            return await self._ask(line, form, rest)
        except asyncio.CancelledError:
            self._failed = CANCELLED
            raise
        except (views.NotAnswered, LineBroken, LineClosed, ProtocolError) as failed:
            raise self._error(failed) from failed

    async def operate_together(
        self, kind: int, name: bytes, rests: Iterable[bytes], *, fixed: bytes = b""
    ) -> list[bytes]:
        """The same for operations that are sent together: a member of Holdfast requests their locks in one round."""
        line = self._usable_line()
        form = forms.form(kind, self._uuid + self._thread + fixed, name)
        sent: list[tuple[int, asyncio.Future[bytes]]] = []
        try:
            for rest in rests:
                await _has_room(line)
                sent.append(line.begin(form, -1, rest))
            return [_answer(line, form, await future) for _, future in sent]
        except asyncio.CancelledError:
            self._failed = CANCELLED
            raise
        except (views.NotAnswered, LineBroken, LineClosed, ProtocolError) as failed:
            raise self._error(failed) from failed
        finally:
            for correlation, future in sent:
                line.pending.pop(correlation, None)
                if future.done():
                    _ignore(future)

    def _usable_line(self) -> MemberLine:
        if self._line is None:
            raise Refused("the transaction has not begun: use it in `async with`")
        if self._failed:
            raise RolledBack(self._failed)
        return self._line

    def _error(self, failed: HoldfastError) -> HoldfastError:
        """The error for the caller. Nothing of the transaction is committed any more."""
        self._failed = str(failed)
        if isinstance(failed, views.NotAnswered):
            told = in_words(failed)
            if isinstance(told, Refused) and failed.code not in views.NOT_APPLIED:
                return told
        return RolledBack(str(failed))

    def wrote(self, cache: NearCache | None, stored: bytes) -> None:
        if cache is not None:
            self._written.append((cache, stored))

    async def _ask(self, line: MemberLine, form: RequestForm, rest: bytes) -> bytes:
        await _has_room(line)
        return await _exchange(line, form, rest)


class TransactionalMap(Generic[K, V]):
    """A map in one transaction, with the keys and values of `Map`."""

    def __init__(self, transaction: Transaction, name: str, near: NearCache | None) -> None:
        self.name = name
        self._transaction = transaction
        self._near = near
        self._named = text(name)
        self._named_last = message([self._named])
        serializers = transaction.serializers
        self._dump, self._dump_value = serializers.dump_key, serializers.dump_value
        self._load: Callable[[bytes | None], Any] = serializers.load

    async def get(self, key: K) -> V | None:
        """The value or None; locks nothing."""
        return await self._value(forms.GET_IN, self._dump(key))

    async def get_for_update(self, key: K) -> V | None:
        """The value or None; locks the entry until this transaction ends."""
        return await self._value(forms.GET_FOR_UPDATE, self._dump(key))

    async def contains_key(self, key: K) -> bool:
        return views.truth(await self._read(forms.CONTAINS_KEY_IN, self._dump(key)))

    async def put(self, key: K, value: V, *, ttl_s: float | None = None) -> V | None:
        """Store a value for `ttl_s` seconds (None: as the map is configured, 0: for ever); returns the previous one, or
        None.
        """
        fixed = _AS_CONFIGURED if ttl_s is None else milliseconds(ttl_s)
        return self._loaded(await self._write(forms.PUT_IN, key, self._dump_value(value), fixed=fixed))

    async def set(self, key: K, value: V) -> None:
        await self._write(forms.SET_IN, key, self._dump_value(value))

    async def put_if_absent(self, key: K, value: V) -> V | None:
        """Store a value if the key has none; returns the existing one, or None if it was stored."""
        return self._loaded(await self._write(forms.PUT_IF_ABSENT_IN, key, self._dump_value(value)))

    async def replace(self, key: K, value: V) -> V | None:
        """Store a value if the key has one; returns the previous one, or None if nothing was stored."""
        return self._loaded(await self._write(forms.REPLACE_IN, key, self._dump_value(value)))

    async def replace_if_same(self, key: K, old: V, new: V) -> bool:
        """Store `new` if the value is `old`; returns whether it was stored."""
        values = (self._dump_value(old), self._dump_value(new))
        return views.truth(await self._write(forms.REPLACE_IF_SAME_IN, key, *values))

    async def remove(self, key: K) -> V | None:
        """Remove a key; returns its value, or None."""
        return self._loaded(await self._write(forms.REMOVE_IN, key))

    async def remove_if_same(self, key: K, value: V) -> bool:
        """Remove a key if its value is this one; returns whether it was removed."""
        return views.truth(await self._write(forms.REMOVE_IF_SAME_IN, key, self._dump_value(value)))

    async def delete(self, key: K) -> None:
        await self._write(forms.DELETE_IN, key)

    async def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """The entries of those keys that have values; like `get`, and requested together."""
        wanted = list(dict.fromkeys(map(self._dump, keys)))
        answers = await self._transaction.operate_together(forms.GET_IN, self._named, map(last, wanted))
        found = zip(wanted, map(views.value_or_none, answers), strict=True)
        return {self._load(stored): self._load(value) for stored, value in found if value is not None}

    async def put_all(self, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        """Store entries like `set`. Their locks are requested together, so not in an order that prevents deadlocks."""
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        stored = [(self._dump(key), self._dump_value(value)) for key, value in pairs]
        for key, _ in stored:
            self._transaction.wrote(self._near, key)
        await self._transaction.operate_together(
            forms.SET_IN, self._named, (data(key) + last(value) for key, value in stored)
        )

    async def size(self) -> int:
        """Entries with this transaction's own changes; not a snapshot."""
        return views.count_in(await self._whole(forms.SIZE_IN))

    async def is_empty(self) -> bool:
        return views.truth(await self._whole(forms.IS_EMPTY_IN))

    async def keys(self) -> list[K]:
        """All keys, with this transaction's own changes; not a snapshot."""
        return list(map(self._load, views.values(await self._whole(forms.KEYS_IN))))

    async def values(self) -> list[V]:
        """All values, with this transaction's own changes; not a snapshot."""
        return list(map(self._load, views.values(await self._whole(forms.VALUES_IN))))

    async def _read(self, kind: int, stored: bytes) -> bytes:
        return await self._transaction.operate(kind, self._named, last(stored))

    async def _value(self, kind: int, stored: bytes) -> V | None:
        return self._loaded(await self._read(kind, stored))

    def _loaded(self, whole: bytes) -> V | None:
        value: V | None = self._load(views.value_or_none(whole))
        return value

    async def _write(self, kind: int, key: K, *values: bytes, fixed: bytes = b"") -> bytes:
        stored = self._dump(key)
        self._transaction.wrote(self._near, stored)
        *first, final = (stored, *values)
        rest = b"".join(map(data, first)) + last(final)
        return await self._transaction.operate(kind, self._named, rest, fixed=fixed)

    async def _whole(self, kind: int) -> bytes:
        return await self._transaction.operate(kind, b"", self._named_last)


def _ignore(answered: asyncio.Future[Any]) -> None:
    """Mark the exception as seen."""
    if not answered.cancelled():
        answered.exception()


async def _has_room(line: MemberLine) -> None:
    if not line.ready:
        await line.room.wait()


async def _exchange(line: MemberLine, form: RequestForm, rest: bytes) -> bytes:
    """Raises NotAnswered, LineBroken, LineClosed, ProtocolError."""
    correlation, future = line.begin(form, -1, rest)
    try:
        return _answer(line, form, await future)
    finally:
        line.pending.pop(correlation, None)


def _answer(line: MemberLine, form: RequestForm, response: Any) -> bytes:
    try:
        whole: bytes = views.answer_in(form, response)
        return whole
    except ProtocolError as broken:
        line.end(f"an invalid response: {broken}")
        raise
