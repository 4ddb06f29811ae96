"""Listeners for migrations and lost partitions.

With `local_only` a client registers at every member, and each reports its own events: the master reports migrations,
the partition's owner (or else the master) a loss. So such a client gets each event once.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from holdfast.core.model.partition_events import Kind, Loss, News, Number
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.maps import guarded, truth
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, INT, event, frame, message, response, uuid
from holdfast.wire.hazelcast.layouts import Call, RequestLayout

ADD_LOST, REMOVE_LOST = 0x000600, 0x000700
ADD_MIGRATION, REMOVE_MIGRATION = 0x001100, 0x001200
ADD_MAP_LOST, REMOVE_MAP_LOST = 0x011B00, 0x011C00

STARTED, FINISHED = 0, 1

_STATE = Struct("<qiiq")
"""Start in ms since 1970, planned, completed, elapsed ms."""
_REPLICA = Struct("<ii17s17s?q")
_LOST = Struct("<ii17s")
_MAP_LOST = Struct("<i17s")


# -- losses


def _add_lost(talk: Conversation, call: Call) -> None:
    def on_event(loss: Loss, source: str) -> bytes:
        fixed = _LOST.pack(loss.partition, loss.lost_backups, uuid(source or None))
        return message([event(call.kind + 2, call.correlation, fixed)])

    _add_loss_listener(talk, call, on_event)


def _add_map_lost(talk: Conversation, call: Call) -> None:
    def on_event(loss: Loss, source: str) -> bytes | None:
        if not loss.concerns(call.name, talk.grid.configured_maps):
            return None
        return message(
            [event(call.kind + 2, call.correlation, _MAP_LOST.pack(loss.partition, uuid(source or None)))]
        )

    _add_loss_listener(talk, call, on_event)


def _add_loss_listener(talk: Conversation, call: Call, event_of: Callable[[Loss, str], bytes | None]) -> None:
    grid = talk.grid

    def on_event(news: News) -> None:
        if news.loss is None:
            return
        source = grid.owner(news.loss.partition) or grid.master
        if not call.local_only or source == grid.member_uuid:
            told = event_of(news.loss, source)
            if told is not None:
                talk.send(told)

    _register(talk, call, on_event)


# -- migrations


def _add_migration(talk: Conversation, call: Call) -> None:
    grid = talk.grid
    began: dict[Number, int] = {}

    def on_event(news: News) -> None:
        if news.kind is Kind.LOST or (call.local_only and grid.master != grid.member_uuid):
            return
        if news.process not in began:
            began.clear()
            began[news.process] = grid.wall_ms() - news.elapsed_ms
        talk.send(migration_event(call, news, began[news.process]))

    _register(talk, call, on_event)


def migration_event(call: Call, news: News, began_ms: int) -> bytes:
    """The event for a registration; `began_ms`: start of the rebalance in ms since 1970."""
    state = [BEGIN, frame(_STATE.pack(began_ms, news.planned, news.completed, news.elapsed_ms)), END]
    if news.migration is None:
        kind = STARTED if news.kind is Kind.STARTED else FINISHED
        return message([event(call.kind + 2, call.correlation, INT.pack(kind)), *state])
    moved = news.migration
    fixed = _REPLICA.pack(
        moved.partition,
        moved.destination_new,
        uuid(moved.source),
        uuid(moved.destination),
        news.kind is Kind.COMPLETED,
        news.took_ms,
    )
    return message([event(call.kind + 3, call.correlation, fixed), *state])


# -- registrations


def _register(talk: Conversation, call: Call, on_event: Callable[[News], None]) -> None:
    registration = talk.register(lambda: talk.grid.on_news(talk.callback("news of a partition", on_event)))
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))


def _remove(talk: Conversation, call: Call) -> None:
    talk.send(truth(call, talk.unregister(call.registration)))


MESSAGES = {
    ADD_LOST: RequestKind(RequestLayout("local_only |"), _add_lost),
    REMOVE_LOST: RequestKind(RequestLayout("registration |"), _remove),
    ADD_MIGRATION: RequestKind(RequestLayout("local_only |"), _add_migration),
    REMOVE_MIGRATION: RequestKind(RequestLayout("registration |"), _remove),
    ADD_MAP_LOST: RequestKind(RequestLayout("local_only | name"), guarded(_add_map_lost)),
    REMOVE_MAP_LOST: RequestKind(RequestLayout("registration | name"), _remove),
}
