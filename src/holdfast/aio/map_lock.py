"""Locks on entries of maps.

- aio/L-1: A task that is cancelled while it waits for a lock releases it when it comes.

Members give a lock to a thread of a client. Here a thread number stands for the outermost lock of a task: writes inside
the `async with` block carry it, also those of tasks that the block starts. A task that locks something itself gets
another number, so that tasks exclude each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from holdfast.client_core import request_forms as forms
from holdfast.client_core.message_decoding import truth
from holdfast.client_core.request_forms import THREAD, RequestForm, last
from holdfast.core.model.collections import FOREVER_MS
from holdfast.core.model.operations import LIFETIME_MS_MAX
from holdfast.errors import HoldfastError, Refused, Unknown
from holdfast.wire.hazelcast.hazelcast_frames import LONG

_NO_LEASE = LONG.pack(-1)
_NAMES_THREAD = frozenset(forms.CODES) - {forms.SET_TTL}
"""Requests whose parameters begin with the thread."""
_references = count(1)
_tasks: set[asyncio.Task[None]] = set()
"""Releases that go on without their task."""


class Asking(Protocol):
    async def ask(self, form: RequestForm, partition: int, rest: bytes) -> Any:
        """See `Client.ask`."""

    def next_thread(self) -> int:
        """See `Client.next_thread`."""


class LockOwner:
    def __init__(self, client: Asking, task: object) -> None:
        """`task`: the task or the thread that entered the block."""
        self.client = client
        self.task = task
        self.thread = LONG.pack(client.next_thread())


lock_owner: ContextVar[LockOwner | None] = ContextVar("holdfast.aio owner of locks", default=None)


def owner_now(client: Asking, task: object) -> LockOwner:
    """The owner of the outermost lock of this task or thread, or a new one."""
    outer = lock_owner.get()
    if outer is not None and outer.client is client and outer.task is task:
        return outer
    return LockOwner(client, task)


def owned_form(form: RequestForm, client: object) -> RequestForm:
    """The form of a write, for the thread of the locks that this task has."""
    owner = lock_owner.get()
    if owner is None or owner.client is not client or form.kind not in _NAMES_THREAD:
        return form
    return replace(form, goes_on=owner.thread + form.goes_on[len(THREAD) :])


class MapLock:
    """A lock on one entry, for `async with`. See `Map.lock` and `Map.try_lock`."""

    def __init__(
        self,
        client: Asking,
        named: bytes,
        stored: bytes,
        partition: int,
        *,
        lease_s: float | None,
        timeout_s: float | None,
    ) -> None:
        """`named`: the frame of the map's name. `timeout_s`: None waits without end. Raises TypeError, ValueError."""
        self._client = client
        self._named = named
        self._stored = stored
        self._partition = partition
        self._lease = _NO_LEASE if lease_s is None else _milliseconds("lease_s", lease_s, 0.001)
        self._timeout = None if timeout_s is None else _milliseconds("timeout_s", timeout_s, 0)
        self._owner: LockOwner | None = None
        self._outer: LockOwner | None = None
        self._locked = False

    async def __aenter__(self) -> bool:
        """Returns whether the entry is locked. Raises Refused, Unknown."""
        if self._owner is not None:
            raise Refused("the lock is in use: make another one with `lock` or `try_lock`")
        self._outer = lock_owner.get()
        owner = self._owner = owner_now(self._client, asyncio.current_task())
        try:
            self._locked = await self.acquire(owner)
        except BaseException:
            self._owner = None
            raise
        if self._locked:
            lock_owner.set(owner)
        return self._locked

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raises Refused if the lease has ended."""
        owner, self._owner = self._owner, None
        if not self._locked or owner is None:
            return
        self._locked = False
        lock_owner.set(self._outer)
        try:
            await self.release(owner)
        except HoldfastError:
            if error is None:
                raise

    async def acquire(self, owner: LockOwner) -> bool:
        """Lock for this owner; if it is cancelled, release the lock when it comes. Raises Refused, Unknown."""
        acquiring = asyncio.ensure_future(self._acquire(owner))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            _go_on(self._release_late(acquiring, owner))
            raise

    async def release(self, owner: LockOwner) -> None:
        """Release to the end, even if it is cancelled. Raises Refused if the lease has ended."""
        await asyncio.shield(_go_on(self._release(owner)))

    async def _acquire(self, owner: LockOwner) -> bool:
        reference = LONG.pack(next(_references))
        if self._timeout is None:
            await self._ask(forms.LOCK, owner.thread + self._lease + reference)
            return True
        fixed = owner.thread + self._lease + self._timeout + reference
        return truth(await self._ask(forms.TRY_LOCK, fixed))

    async def _release(self, owner: LockOwner) -> None:
        fixed = owner.thread + LONG.pack(next(_references))
        try:
            await self._ask(forms.UNLOCK, fixed)
        except Unknown:
            # Members recognize the repeated request, but not if the first one has removed the lock.
            try:
                await self._ask(forms.UNLOCK, fixed)
            except Refused:
                pass

    async def _release_late(self, acquiring: asyncio.Task[bool], owner: LockOwner) -> None:
        try:
            if await acquiring:
                await self._release(owner)
        except HoldfastError:
            pass  # The lock ends with its lease, or with the client.

    async def _ask(self, kind: int, fixed: bytes) -> bytes:
        form = forms.form(kind, fixed, self._named)
        answer: bytes = await self._client.ask(form, self._partition, last(self._stored))
        return answer


def _go_on(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run it to its end, even if the task that waits for it is cancelled."""
    task = asyncio.get_running_loop().create_task(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


def _milliseconds(name: str, seconds: float, least_s: float) -> bytes:
    """Raises TypeError, ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} is a number of seconds, not {type(seconds).__name__}")
    most_s = min(LIFETIME_MS_MAX, FOREVER_MS) / 1000
    if not least_s <= seconds <= most_s:
        raise ValueError(f"{name} is {least_s:g} to {most_s:g} seconds, not {seconds!r}")
    return LONG.pack(round(seconds * 1000))
