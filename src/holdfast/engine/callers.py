"""Callbacks of sessions, operators and tests, by token. The member itself knows only the tokens (`core.events`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.effects import (
    Announce,
    BackpressureChanged,
    ClusterChanged,
    Complete,
    Delivery,
    Notify,
    RunProcessor,
)
from holdfast.core.events import (
    ChangesAsked,
    ClientConnected,
    ClientRequest,
    CollectorAdded,
    CutLeased,
    CutRequested,
    Event,
    ListenerAdded,
    MapDestroyed,
    ProcessorEnded,
    RequestWithdrawn,
    SubscriptionEnded,
    TransactionAsked,
)
from holdfast.core.model.changes_since import Asked, ChangesSince
from holdfast.core.model.ids import Token
from holdfast.core.model.operations import Done, EntryEvent, Request, WrittenEntries
from holdfast.core.model.partition_events import News
from holdfast.core.model.processors import ProcessorResult, ProcessorRun
from holdfast.core.model.transaction_orders import TransactionAnswer, TransactionOrder
from holdfast.core.primary_backup.cuts import Taken
from holdfast.engine.ports import ProcessorRunner


class Callers:
    def __init__(self, put: Callable[[Event], None], share: Callable[[Event], None]) -> None:
        """`put` handles an event; `share` one that shares its step with others."""
        self._put = put
        self._share = share
        self._last: Token = 0
        self._waiting: dict[Token, Callable[[Any], None]] = {}
        self._listening: dict[Token, Callable[[Any], None]] = {}
        self._on_written: dict[Token, Callable[[WrittenEntries], None]] = {}
        """Callbacks of those that take several events at once."""
        self._watchers: dict[Token, Callable[[], None]] = {}
        self._news_listeners: dict[Token, Callable[[News], None]] = {}
        self.processors: ProcessorRunner | None = None
        """Set by the world."""
        self.backpressure_changed: Callable[[], None] = lambda: None
        """Set by the client port; called when reading from clients should stop or resume."""

    def _token(self) -> Token:
        self._last += 1
        return self._last

    # -- requests

    def expect(self, done: Callable[[Any], None]) -> Token:
        self._last = token = self._last + 1
        assert token not in self._waiting, "a token names one question"
        self._waiting[token] = done
        return token

    def execute_waiting(self, request: Request, done: Done) -> Callable[[], None]:
        """Like `Driver.execute`, for a request that may wait for a change. Returns the function that withdraws it:
        `done` is called all the same, soon.
        """
        token = self.expect(done)
        self._share(ClientRequest(token, request, more=True))

        def withdraw() -> None:
            if token in self._waiting:
                self._put(RequestWithdrawn(token))

        return withdraw

    def complete(self, token: Token, answer: object) -> None:
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
        self._put(CutRequested(self.expect(done), cut, maps, partitions, lease_ms, passive))

    def hold_cut(self, cut: bytes, lease_ms: int, done: Callable[[int], None]) -> None:
        self._put(CutLeased(self.expect(done), cut, lease_ms))

    def ask_changes(self, asked: Asked, done: Callable[[ChangesSince], None]) -> None:
        self._put(ChangesAsked(self.expect(done), asked))

    def order_transaction(self, order: TransactionOrder, done: Callable[[TransactionAnswer], None]) -> None:
        self._share(TransactionAsked(self.expect(done), order, more=True))

    # -- subscriptions

    def listen(
        self,
        name: str,
        *,
        key: bytes | None,
        local_only: bool,
        on_event: Callable[[EntryEvent], None],
        invalidations: bool = False,
        on_written: Callable[[WrittenEntries], None] | None = None,
    ) -> Callable[[], None]:
        """`on_written` gets several events at once; None: `on_event` gets each of them."""
        return self._subscribe(
            on_event, lambda token: ListenerAdded(token, name, key, local_only, invalidations), on_written
        )

    def destroyed(self, name: str) -> None:
        self._put(MapDestroyed(name))

    def watch_acks(self, client: bytes, on_ack: Callable[[int], None]) -> Callable[[], None]:
        """Call `on_ack` with the correlation id of each request of this client whose writes this member holds
        as a backup. Returns the function that unsubscribes.
        """
        return self._subscribe(on_ack, lambda token: CollectorAdded(token, client))

    def connect(self, client: bytes) -> Callable[[], None]:
        """A client has logged in on a connection; returns the function that reports its end."""
        return self._subscribe(_ignore, lambda token: ClientConnected(token, client))

    def _subscribe(
        self,
        on_event: Callable[[Any], None],
        event: Callable[[Token], Event],
        on_written: Callable[[WrittenEntries], None] | None = None,
    ) -> Callable[[], None]:
        token = self._token()
        assert token not in self._listening and token not in self._waiting, "a token names one registration"
        self._listening[token] = on_event
        if on_written is not None:
            self._on_written[token] = on_written
        self._put(event(token))

        def end() -> None:
            self._on_written.pop(token, None)
            if self._listening.pop(token, None) is not None:
                self._put(SubscriptionEnded(token))

        return end

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Changes of members or assignments; returns the function that unsubscribes."""
        token = self._token()
        self._watchers[token] = changed

        def unwatch() -> None:
            self._watchers.pop(token, None)

        return unwatch

    def on_news(self, on_event: Callable[[News], None]) -> Callable[[], bool]:
        """Returns the function that unsubscribes, which returns whether it was still subscribed."""
        token = self._token()
        self._news_listeners[token] = on_event
        return lambda: self._news_listeners.pop(token, None) is not None

    # -- results and events

    def deliver(self, delivery: Delivery) -> None:
        """Call the addressees that are still subscribed. A callback may unsubscribe others."""
        match delivery:
            case Complete(token, answer):
                self.complete(token, answer)
            case Notify(token, WrittenEntries() as written):
                self._deliver_written(token, written)
            case Notify(token, what):
                if (on_event := self._listening.get(token)) is not None:
                    on_event(what)
            case Announce(news):
                for token in list(self._news_listeners):
                    if (listener := self._news_listeners.get(token)) is not None:
                        listener(news)
            case ClusterChanged():
                for token in list(self._watchers):
                    if (watcher := self._watchers.get(token)) is not None:
                        watcher()
            case BackpressureChanged():
                self.backpressure_changed()
            case RunProcessor(run, asked):
                self._run_processor(run, asked)

    def _run_processor(self, run: int, asked: ProcessorRun) -> None:
        def ended(result: ProcessorResult) -> None:
            self._put(ProcessorEnded(run, result))

        if self.processors is None:
            ended(ProcessorResult(error="this member runs no entry processors"))
        else:
            self.processors.run(asked, ended)

    def _deliver_written(self, token: Token, written: WrittenEntries) -> None:
        if (on_written := self._on_written.get(token)) is not None:
            on_written(written)
            return
        for event in written.events():
            if (on_event := self._listening.get(token)) is None:
                return
            on_event(event)


def _ignore(_: object) -> None:
    """The subscriber gets no events."""
