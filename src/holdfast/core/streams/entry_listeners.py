"""Entry listeners of this member's sessions, for events of this member or of all members."""

from __future__ import annotations

from holdfast.core.effects import Notify
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import Events, Subscribe
from holdfast.core.model.ids import MemberId, Token
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.operations import EntryEvent, EventKind
from holdfast.core.outbox import Outbox


class Listener:
    __slots__ = ("invalidations", "key", "local_only", "name", "token")

    def __init__(
        self, token: Token, name: str, key: bytes | None, *, local_only: bool, invalidations: bool
    ) -> None:
        self.token = token
        self.name = name
        self.key = key
        self.local_only = local_only
        self.invalidations = invalidations

    def takes(self, event: EntryEvent) -> bool:
        """Whether the event matches: all keys, this key, or the whole map."""
        if event.kind is EventKind.INVALIDATED and not self.invalidations:
            return False
        return self.key is None or event.key is None or event.key == self.key


class EntryListeners:
    def __init__(self, me: MemberId, out: Outbox, membership: MembershipStatus) -> None:
        self._me = me
        self._out = out
        self._membership = membership
        self.listening: dict[str, int] = {}
        """Maps with listeners, here or on other members -> how many."""
        self._by_token: dict[Token, Listener] = {}
        self._local: dict[str, list[Listener]] = {}
        self._subscribers: dict[str, set[MemberId]] = {}
        self._pending: dict[MemberId, list[EntryEvent]] = {}

    def add(
        self,
        token: Token,
        name: str,
        key: bytes | None,
        *,
        local_only: bool,
        invalidations: bool = False,
    ) -> None:
        """Register the token for events of a map; with `invalidations` also for those of near caches."""
        assert token not in self._by_token, "a token names one registration"
        wide_before = self._wide(name)
        listener = self._by_token[token] = Listener(
            token, name, key, local_only=local_only, invalidations=invalidations
        )
        self._local.setdefault(name, []).append(listener)
        self._count(name)
        if not local_only and not wide_before:
            self._subscribe(name, wanted=True)

    def remove(self, token: Token) -> None:
        listener = self._by_token.pop(token, None)
        if listener is None:
            return
        name = listener.name
        registered = self._local[name]
        registered.remove(listener)
        if not registered:
            del self._local[name]
        self._count(name)
        assert name in self.listening or name not in self._local, "who listens is counted"
        if not listener.local_only and not self._wide(name):
            self._subscribe(name, wanted=False)

    def _notify(self, listener: Listener, event: EntryEvent) -> None:
        self._out.effects.append(Notify(listener.token, event))

    def _wide(self, name: str) -> bool:
        return any(not listener.local_only for listener in self._local.get(name, []))

    def _subscribe(self, name: str, *, wanted: bool) -> None:
        for info in self._membership.members():
            if info.uuid != self._me:
                self._out.send(info.uuid, Subscribe(name, wanted))

    def _count(self, name: str) -> None:
        total = len(self._local.get(name, [])) + len(self._subscribers.get(name, ()))
        assert self._local.get(name, True), "a map without listeners has no entry"
        if total:
            self.listening[name] = total
        else:
            self.listening.pop(name, None)

    def on_subscribe(self, sender: MemberId, message: Subscribe) -> None:
        subscribers = self._subscribers.setdefault(message.map, set())
        if message.wanted:
            subscribers.add(sender)
        else:
            subscribers.discard(sender)
        if not subscribers:
            del self._subscribers[message.map]
        self._count(message.map)

    def destroy(self, name: str) -> None:
        """The map is destroyed: its listeners end on all members. A later map of that name is another map."""
        for info in self._membership.members():
            if info.uuid != self._me:
                self._out.send(info.uuid, Events([EntryEvent(EventKind.DESTROYED, name, self._me)]))
        self._end(name)

    def _end(self, name: str) -> None:
        """End the registrations for this map, except for near caches, which may still hold its entries."""
        for listener in list(self._local.get(name, [])):
            if not listener.invalidations:
                self.remove(listener.token)

    def on_events(self, message: Events) -> None:
        for event in message.events:
            if event.kind is EventKind.DESTROYED:
                self._end(event.map)
                continue
            for listener in list(self._local.get(event.map, [])):
                if not listener.local_only and listener.takes(event):
                    self._notify(listener, event)

    def hear(self, event: EntryEvent) -> None:
        for listener in list(self._local.get(event.map, [])):
            if listener.takes(event):
                self._notify(listener, event)
        for member in sorted(self._subscribers.get(event.map, ())):
            self._pending.setdefault(member, []).append(event)

    def flush(self) -> None:
        """Send pending events: one message per member and step."""
        if self._pending:
            pending, self._pending = self._pending, {}
            for member, events in pending.items():
                self._out.send(member, Events(events))

    @property
    def leftovers(self) -> dict[str, int]:
        return {"events not sent": len(self._pending)}

    @property
    def wide(self) -> list[str]:
        """Maps with listeners of this member for events of all members."""
        return sorted(name for name in self._local if self._wide(name))

    def subscribers(self, name: str) -> set[MemberId]:
        return set(self._subscribers.get(name, ()))

    def has_near_caches(self, name: str) -> bool:
        """Whether clients of this member have near caches of the map."""
        return any(listener.invalidations for listener in self._local.get(name, []))

    @property
    def subscribed_maps(self) -> list[str]:
        return sorted({*self._local, *self._subscribers})

    def on_view(self, notice: ViewInstalled) -> None:
        """Drop subscriptions of members that left; subscribe at new members."""
        for name in sorted(self._subscribers):
            self._subscribers[name] -= notice.gone
            if not self._subscribers[name]:
                del self._subscribers[name]
            self._count(name)
        for name in sorted(self._local):
            if self._wide(name):
                for member in sorted(notice.came):
                    self._out.send(member, Subscribe(name, True))
