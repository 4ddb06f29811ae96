"""Entry listeners of this member's sessions, for events of this member or of all members.

- streams/E-1: A near cache that listens to one member gets from it every change in the partitions that it owns, also if
  another member decides them as leader of a zone. That leader relays its events to the owner. Messages between two
  members keep their order, so the event follows all responses with the old value that the leader gave to the owner.

Example: a client reads key k at member 1, which owns its partition and asks the leader, member 2. Then k is set. If the
client got the event from member 2 only, it could overtake the old value, which the client would keep for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.effects import Notify
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import Events, Subscribe
from holdfast.core.model.ids import MemberId, Token
from holdfast.core.model.keys import partition_of
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.operations import EntryEvent, EventKind, WrittenEntries, WrittenRow, events_of
from holdfast.core.model.partition_table import Assignment
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

    def takes_remote(self, event: EntryEvent) -> bool:
        """Whether it gets this event of another member."""
        relayed = self.invalidations and bool(event.group)
        return (relayed or not self.local_only) and self.takes(event)


class EntryListeners:
    def __init__(
        self, me: MemberId, out: Outbox, membership: MembershipStatus, rows: Sequence[Assignment]
    ) -> None:
        """`rows`: the assignments of the partition table."""
        self._me = me
        self._out = out
        self._membership = membership
        self._rows = rows
        self.listening: dict[str, int] = {}
        """Maps with listeners, here or on other members -> how many."""
        self._by_token: dict[Token, Listener] = {}
        self._local: dict[str, list[Listener]] = {}
        self._subscribers: dict[str, set[MemberId]] = {}
        """Members that get all events of a map."""
        self._relayed: dict[str, set[MemberId]] = {}
        """Members that get those of streams/E-1."""
        self._pending: dict[MemberId, list[EntryEvent]] = {}
        self._open: dict[str, WrittenEntries] = {}
        """By map: the events that its listeners get together, while no other event comes between."""

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
        wide_before, near_before = self._wide(name), self.has_near_caches(name)
        self._open.pop(name, None)
        listener = self._by_token[token] = Listener(
            token, name, key, local_only=local_only, invalidations=invalidations
        )
        self._local.setdefault(name, []).append(listener)
        self._count(name)
        if not local_only and not wide_before:
            self._subscribe(Subscribe(name, True))
        if invalidations and not near_before:
            self._subscribe(Subscribe(name, True, relayed=True))

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
            self._subscribe(Subscribe(name, False))
        if listener.invalidations and not self.has_near_caches(name):
            self._subscribe(Subscribe(name, False, relayed=True))

    def _notify(self, listener: Listener, event: EntryEvent) -> None:
        self._out.effects.append(Notify(listener.token, event))

    def _wide(self, name: str) -> bool:
        return any(not listener.local_only for listener in self._local.get(name, []))

    def _subscribe(self, message: Subscribe) -> None:
        for info in self._membership.members():
            if info.uuid != self._me:
                self._out.send(info.uuid, message)

    def _count(self, name: str) -> None:
        subscribers = len(self._subscribers.get(name, ())) + len(self._relayed.get(name, ()))
        total = len(self._local.get(name, [])) + subscribers
        assert self._local.get(name, True), "a map without listeners has no entry"
        if total:
            self.listening[name] = total
        else:
            self.listening.pop(name, None)

    def on_subscribe(self, sender: MemberId, message: Subscribe) -> None:
        by_map = self._relayed if message.relayed else self._subscribers
        subscribers = by_map.setdefault(message.map, set())
        if message.wanted:
            subscribers.add(sender)
        else:
            subscribers.discard(sender)
        if not subscribers:
            del by_map[message.map]
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
        self._open.clear()
        for event in message.events:
            if event.kind is EventKind.DESTROYED:
                self._end(event.map)
                continue
            for listener in list(self._local.get(event.map, [])):
                if listener.takes_remote(event):
                    self._notify(listener, event)

    def hear_written(self, name: str, rows: list[WrittenRow]) -> None:
        """Events of entries that compiled code has written, as `hear` gets them one by one. Listeners of the whole map
        get those of a step together.
        """
        together = self._open.get(name)
        listeners = self._local.get(name, ())
        if together is None:
            together = self._open[name] = WrittenEntries(name, self._me)
            for listener in listeners:
                if listener.key is None:
                    self._out.effects.append(Notify(listener.token, together))
        together.rows += rows
        for listener in listeners:
            if listener.key is not None:
                for event in events_of(name, self._me, [row for row in rows if row[1] == listener.key]):
                    self._notify(listener, event)
        subscribers = self._subscribers.get(name)
        if subscribers:
            events = events_of(name, self._me, rows)
            for member in sorted(subscribers):
                self._pending.setdefault(member, []).extend(events)

    def hear(self, event: EntryEvent) -> None:
        self._open.pop(event.map, None)
        for listener in list(self._local.get(event.map, [])):
            if listener.takes(event):
                self._notify(listener, event)
        subscribers = self._subscribers.get(event.map, set())
        if event.group and event.map in self._relayed:
            subscribers = subscribers | self._relays(event)
        for member in sorted(subscribers):
            self._pending.setdefault(member, []).append(event)

    def _relays(self, event: EntryEvent) -> set[MemberId]:
        """The members that get an event of a zone for their near caches (streams/E-1); all, if it has no key."""
        wanting = self._relayed[event.map]
        if event.key is None:
            return wanting
        owner = self._rows[partition_of(event.key, event.key_hash, len(self._rows))].owner
        return {owner} & wanting if owner is not None else set()

    def invalidate(self, name: str) -> None:
        """Let the near caches of clients of this member drop the whole map."""
        if name in self._local:
            self.hear(EntryEvent(EventKind.INVALIDATED, name, self._me))

    def flush(self) -> None:
        """Send pending events: one message per member and step."""
        self._open.clear()
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

    def subscribers(self, name: str, *, relayed: bool = False) -> set[MemberId]:
        return set((self._relayed if relayed else self._subscribers).get(name, ()))

    def has_near_caches(self, name: str) -> bool:
        """Whether clients of this member have near caches of the map."""
        return any(listener.invalidations for listener in self._local.get(name, []))

    @property
    def near_cached(self) -> list[str]:
        """Maps with near caches of clients of this member."""
        return sorted(name for name in self._local if self.has_near_caches(name))

    @property
    def subscribed_maps(self) -> list[str]:
        return sorted({*self._local, *self._subscribers, *self._relayed})

    def on_view(self, notice: ViewInstalled) -> None:
        """Drop subscriptions of members that left; subscribe at new members."""
        for by_map in (self._subscribers, self._relayed):
            for name in sorted(by_map):
                by_map[name] -= notice.gone
                if not by_map[name]:
                    del by_map[name]
                self._count(name)
        for member in sorted(notice.came):
            for name in self.wide:
                self._out.send(member, Subscribe(name, True))
            for name in self.near_cached:
                self._out.send(member, Subscribe(name, True, relayed=True))
