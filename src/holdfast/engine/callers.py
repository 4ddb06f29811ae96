"""Who is to be told what the member answers? The callables of sessions, operators and judges, by token.

The member knows tokens alone (`core.events`); what is called lives here, outside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.effects import Announce, BackpressureChanged, ClusterChanged, Complete, Delivery, Notify
from holdfast.core.events import (
    ChangesAsked,
    CollectorAdded,
    CutLeased,
    CutRequested,
    Event,
    ListenerAdded,
    MapDestroyed,
    MetastoreAsked,
    SubscriptionEnded,
    TransactionAsked,
    ZoneOrdered,
)
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.ids import Token
from holdfast.core.model.metastore_questions import MetastoreAnswer, MetastoreQuestion
from holdfast.core.model.operations import EntryEvent
from holdfast.core.model.partition_events import News
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionOrder
from holdfast.core.model.zone_questions import ZoneAnswer, ZoneOrder
from holdfast.core.primary_backup.cuts import Taken


class Callers:
    """Everybody who has asked this member something, or listens to it."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        """`put`: lets the member handle an event."""
        self._put = put
        self._last: Token = 0
        self._waiting: dict[Token, Callable[[Any], None]] = {}
        """What is called once."""
        self._listening: dict[Token, Callable[[Any], None]] = {}
        """What is called again and again."""
        self._watchers: dict[Token, Callable[[], None]] = {}
        self._hearers: dict[Token, Callable[[News], None]] = {}
        self.backpressure_changed: Callable[[], None] = lambda: None
        """Set by the client door: told when clients should be read no more, or again."""

    def _token(self) -> Token:
        self._last += 1
        return self._last

    # -- what is asked once

    def expect(self, done: Callable[[Any], None]) -> Token:
        """A token for a question; `done` is called with what answers it."""
        self._last = token = self._last + 1
        assert token not in self._waiting, "a token names one question"
        self._waiting[token] = done
        return token

    def complete(self, token: Token, answer: object) -> None:
        """A question is answered."""
        self._waiting.pop(token)(answer)

    def take_cut(
        self,
        cut: bytes,
        maps: tuple[str, ...],
        partitions: tuple[int, ...],
        lease_ms: int,
        done: Callable[[Taken], None],
        *,
        passive: bool = False,
    ) -> None:
        """A client wants these maps kept as they are now: see `Cuts.take`."""
        self._put(CutRequested(self.expect(done), cut, maps, partitions, lease_ms, passive))

    def hold_cut(self, cut: bytes, lease_ms: int, done: Callable[[int], None]) -> None:
        """A client goes on with a cut for so long, or not (0): see `Cuts.hold`."""
        self._put(CutLeased(self.expect(done), cut, lease_ms))

    def ask_changes(self, asked: Asked, done: Callable[[ChangesSince], None]) -> None:
        """What has changed? See `ChangeStreams.ask`."""
        self._put(ChangesAsked(self.expect(done), asked))

    def ask_metastore(self, question: MetastoreQuestion, done: Callable[[MetastoreAnswer], None]) -> None:
        """Ask the metastore, or change a key of it: see `OperatorQuestions`."""
        self._put(MetastoreAsked(self.expect(done), question))

    def order_zone(self, order: ZoneOrder, done: Callable[[ZoneAnswer], None]) -> None:
        """What an operator wants of zones: see `ZoneOrders`."""
        self._put(ZoneOrdered(self.expect(done), order))

    def order_transaction(self, order: TransactionOrder, done: Callable[[TransactionAnswer], None]) -> None:
        """What a session or an operator wants of a transaction: see `Transactions.take`."""
        self._put(TransactionAsked(self.expect(done), order))

    # -- what is listened to

    def listen(
        self,
        name: str,
        *,
        key: bytes | None,
        local_only: bool,
        heard: Callable[[EntryEvent], None],
        invalidations: bool = False,
    ) -> Callable[[], None]:
        """Call `heard` with each change of a map's entries; answers the function that ends it."""
        return self._subscribe(
            heard, lambda token: ListenerAdded(token, name, key, local_only, invalidations)
        )

    def destroyed(self, name: str) -> None:
        """The map is destroyed: who listens to it hears no more, on any member."""
        self._put(MapDestroyed(name))

    def collect(self, client: bytes, heard: Callable[[int], None]) -> Callable[[], None]:
        """Call `heard` when this member, as a backup, holds what a client's request has written; answers the function
        that ends it.
        """
        return self._subscribe(heard, lambda token: CollectorAdded(token, client))

    def _subscribe(self, heard: Callable[[Any], None], event: Callable[[Token], Event]) -> Callable[[], None]:
        token = self._token()
        assert token not in self._listening and token not in self._waiting, "a token names one registration"
        self._listening[token] = heard
        self._put(event(token))

        def end() -> None:
            if self._listening.pop(token, None) is not None:
                self._put(SubscriptionEnded(token))

        return end

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after steps in which members or rows changed; answers the function that ends it."""
        token = self._token()
        self._watchers[token] = changed

        def unwatch() -> None:
            self._watchers.pop(token, None)

        return unwatch

    def on_news(self, heard: Callable[[News], None]) -> Callable[[], bool]:
        """Call `heard` with each piece of news from now on; answers the function that ends it.

        That function says whether it has ended something: False when called again.
        """
        token = self._token()
        self._hearers[token] = heard
        return lambda: self._hearers.pop(token, None) is not None

    # -- what the member says

    def deliver(self, delivery: Delivery) -> None:
        """Tell whom it concerns. Who has stopped listening meanwhile hears nothing more."""
        match delivery:
            case Complete(token, answer):
                self.complete(token, answer)
            case Notify(token, what):
                if (heard := self._listening.get(token)) is not None:
                    heard(what)
            case Announce(news):
                for token in list(self._hearers):
                    if (hearer := self._hearers.get(token)) is not None:
                        hearer(news)
            case ClusterChanged():
                for token in list(self._watchers):
                    if (watcher := self._watchers.get(token)) is not None:
                        watcher()
            case BackpressureChanged():
                self.backpressure_changed()
