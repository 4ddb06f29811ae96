"""Who hears of changes: entry listeners of this member's sessions, here or on all members."""

from __future__ import annotations

from holdfast.core.machine import Notify, Outbox, Token
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import Events, Subscribe
from holdfast.core.model.ids import MemberId
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.operations import EntryEvent, EventKind


class Listener:
    """One registration."""

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
        """Whether the event is of interest: all keys, this key, or the whole map."""
        if event.kind is EventKind.INVALIDATED and not self.invalidations:
            return False
        return self.key is None or event.key is None or event.key == self.key


class EntryListeners:
    """Registrations of this member's sessions and subscriptions of other members."""

    def __init__(self, me: MemberId, out: Outbox, membership: MembershipStatus) -> None:
        self._me = me
        self._out = out
        self._membership = membership
        self.listening: dict[str, int] = {}
        """Maps of which somebody, here or elsewhere, wants to hear, and how many want to."""
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
        """Register: the token is notified of the map's events; with `invalidations` also of what near caches hear."""
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
        """End it; nothing happens when there is none."""
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
        assert self._local.get(name, True), "a map that nobody listens to has no place"
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
        """The map is destroyed: its listeners end, on all members. One of that name that comes later is another map."""
        for info in self._membership.members():
            if info.uuid != self._me:
                self._out.send(info.uuid, Events([EntryEvent(EventKind.DESTROYED, name, self._me)]))
        self._end(name)

    def _end(self, name: str) -> None:
        """End all registrations for this map. What feeds a near cache stays: others may still hold what it was fed."""
        for listener in list(self._local.get(name, [])):
            if not listener.invalidations:
                self.remove(listener.token)

    def on_events(self, message: Events) -> None:
        """Events of another member."""
        for event in message.events:
            if event.kind is EventKind.DESTROYED:
                self._end(event.map)
                continue
            for listener in list(self._local.get(event.map, [])):
                if not listener.local_only and listener.takes(event):
                    self._notify(listener, event)

    def hear(self, event: EntryEvent) -> None:
        """An entry of a map has changed here, says the data lane."""
        for listener in list(self._local.get(event.map, [])):
            if listener.takes(event):
                self._notify(listener, event)
        for member in sorted(self._subscribers.get(event.map, ())):
            self._pending.setdefault(member, []).append(event)

    def flush(self) -> None:
        """Send what other members are to hear: one message a member and step."""
        if self._pending:
            pending, self._pending = self._pending, {}
            for member, events in pending.items():
                self._out.send(member, Events(events))

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {"events not sent": len(self._pending)}

    @property
    def wide(self) -> list[str]:
        """Maps of which this member's sessions want to hear from all members."""
        return sorted(name for name in self._local if self._wide(name))

    def subscribers(self, name: str) -> set[MemberId]:
        """The other members that want to hear of this map."""
        return set(self._subscribers.get(name, ()))

    @property
    def heard_of(self) -> list[str]:
        """Maps that somebody, here or elsewhere, wants to hear of."""
        return sorted({*self._local, *self._subscribers})

    def on_view(self, notice: ViewInstalled) -> None:
        """Forget the subscriptions of those who left; subscribe with those who came."""
        for name in sorted(self._subscribers):
            self._subscribers[name] -= notice.gone
            if not self._subscribers[name]:
                del self._subscribers[name]
            self._count(name)
        for name in sorted(self._local):
            if self._wide(name):
                for member in sorted(notice.came):
                    self._out.send(member, Subscribe(name, True))
